import type { JSX } from 'preact'
import type { OperationType } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import { Link } from '../navigation.tsx'
import { Action } from '../parts/action-form.tsx'
import { Facts } from '../parts/facts.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Moment } from '../parts/time.tsx'
import { pathOf, urlWith } from '../router.ts'
import { lookUp } from '../status.ts'
import type { Texts } from '../texts.ts'

const EVERY_MS = 10_000

export const TypesPage = (): JSX.Element => {
  const { client, t } = useApp()
  const types = useRead('types', (signal) => client.get('/operation-types', { signal }), EVERY_MS)
  return (
    <>
      <h1>{t.types.title}</h1>
      <Loaded read={types}>
        {({ items }) => (
          <>
            {items.length === 0 && <p>{t.types.empty}</p>}
            {items.map((type) => (
              <TypeCard key={type.name} type={type} onChanged={types.refresh} />
            ))}
          </>
        )}
      </Loaded>
    </>
  )
}

const limitTexts = ({ limits, effect }: OperationType, t: Texts, count: (value: number) => string): string[] => [
  t.types.parallelism(count(limits.parallelism)),
  effect === 'external'
    ? t.types.concurrency(count(limits.concurrency))
    : t.types.batch(count(limits.batch.max_items), count(limits.batch.max_ms)),
  limits.rate_per_second === null ? t.types.noRateLimit : t.types.rateLimit(count(limits.rate_per_second)),
  t.types.attempts(count(limits.retry.max_attempts)),
  t.types.cancelWithin(count(limits.max_cancel_seconds)),
]

const TypeCard = ({ type, onChanged }: { type: OperationType; onChanged: () => void }): JSX.Element => {
  const { t, language } = useApp()
  const count = (value: number): string => formatCount(value, language)
  const advice = type.lease_advice_seconds
  const leaseAdvice = advice === null ? t.types.noAdvice : t.types.leaseAdvice(count(advice.min), count(advice.max))
  const { items_days: itemsDays, ledger_days: ledgerDays } = type.retention
  const takenBack = lookUp(t.replay.compensations, type.compensation)
  return (
    <section class="card" aria-label={type.name}>
      <h2>
        {type.name} <span class="muted small">{t.types.version(type.version)}</span>
      </h2>
      {type.description !== null && <p>{type.description}</p>}
      <KillSwitch type={type} onChanged={onChanged} />
      <Facts
        facts={[
          [t.types.cancelGuarantee, lookUp(t.guarantee, type.cancel_guarantee)],
          [t.types.effect, lookUp(t.effect, type.effect)],
          [t.types.risk, lookUp(t.risk, type.risk)],
          [t.types.touches, type.touches.map((what) => lookUp(t.touches, what)).join(', ') || t.none],
          [t.types.owner, type.owner],
          [t.types.approval, lookUp(t.approvalRule, type.approval)],
          [t.types.limits, limitTexts(type, t, count).join(' · ')],
          [t.types.lease, `${t.types.leaseIs(count(type.limits.lease_seconds))} (${leaseAdvice})`],
          [t.types.p95, type.p95_ms === null ? t.none : `${count(Math.round(type.p95_ms))} ms`],
          [t.types.stopIf, type.stop_if.join(', ') || t.none],
          [t.types.retention, t.types.retentionDays(count(itemsDays), count(ledgerDays))],
          [t.types.compensation, [takenBack, type.no_compensation_reason].filter((part) => part !== null).join(': ')],
        ]}
      />
      <p>
        <Link href={urlWith(pathOf({ page: 'operations' }), { type: type.name })}>{t.types.operations}</Link>
      </p>
    </section>
  )
}

const KillSwitch = ({ type, onChanged }: { type: OperationType; onChanged: () => void }): JSX.Element => {
  const { client, t } = useApp()
  const { name, paused } = type
  const path = { name }
  if (paused === null) {
    return (
      <>
        <p class="small muted">
          {t.types.killSwitch}: {t.types.isRunning}
        </p>
        <Action
          button={t.types.stop}
          title={t.types.stopTitle}
          what={t.types.stopWhat}
          confirm={t.types.stopConfirm}
          reason="optional"
          isDangerous
          run={(reason) => client.post('/operation-types/{name}/pause', { path, body: { reason } })}
          onDone={onChanged}
        />
      </>
    )
  }
  return (
    <>
      <div class="box bad">
        <p class="box-title">{t.types.isPaused(paused.by ?? t.none)}</p>
        {paused.reason !== null && <p class="quote">{paused.reason}</p>}
        <p class="small">
          <Moment at={paused.at} />
        </p>
      </div>
      <Action
        button={t.types.go}
        title={t.types.goTitle}
        what={t.types.goWhat}
        confirm={t.types.goConfirm}
        reason="optional"
        run={(reason) => client.post('/operation-types/{name}/resume', { path, body: { reason } })}
        onDone={onChanged}
      />
    </>
  )
}
