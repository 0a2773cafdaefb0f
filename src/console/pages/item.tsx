import type { JSX } from 'preact'
import type { HistoryEvent } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { useRead } from '../live/use-read.ts'
import { Link } from '../navigation.tsx'
import { Facts } from '../parts/facts.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { OperationLink } from '../parts/operation-links.tsx'
import { Pager } from '../parts/pager.tsx'
import { Moment } from '../parts/time.tsx'
import { pathOf, type Query, urlWith } from '../router.ts'
import { lookUp } from '../status.ts'

const EVERY_MS = 5_000
const PAGE_LIMIT = 50

/** One item's ledger with its lineage: over all replays, oldest first. */
export const ItemPage = ({ id, itemKey, query }: { id: string; itemKey: string; query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const { cursor } = query
  const history = useRead(
    `history/${id}/${itemKey}/${cursor}`,
    (signal) =>
      client.get('/operations/{id}/items/{key}/history', {
        path: { id, key: itemKey },
        query: { cursor, limit: PAGE_LIMIT },
        signal,
      }),
    EVERY_MS,
  )
  const effectKey = history.data?.items.findLast(({ entry }) => entry !== null)?.entry?.effect_key
  return (
    <>
      <h1>{t.item.title(itemKey)}</h1>
      <p>
        {t.item.inOperation} <OperationLink id={id} />
        {' · '}
        <Link href={urlWith(pathOf({ page: 'reconciliation' }), { item_key: itemKey, status: 'open,resolved' })}>
          {t.item.openCases}
        </Link>
        {effectKey !== undefined && (
          <>
            {' · '}
            <Link href={urlWith(pathOf({ page: 'operations' }), { effect_key: effectKey })}>{t.item.findEffect}</Link>
          </>
        )}
      </p>
      <h2>{t.item.lineage}</h2>
      <Loaded read={history}>
        {({ items, next_cursor }) => (
          <>
            <ol class="timeline">
              {items.map((event, index) => (
                <li key={`${event.at}${event.kind}${index}`}>
                  <HistoryEntry event={event} />
                </li>
              ))}
            </ol>
            <Pager pathname={location.pathname} query={query} next={next_cursor} />
          </>
        )}
      </Loaded>
    </>
  )
}

const HistoryEntry = ({ event }: { event: HistoryEvent }): JSX.Element => {
  const { t } = useApp()
  const { entry, kind, incident_id: incidentId } = event
  const what =
    entry === null
      ? lookUp(t.item.kinds, kind)
      : entry.state === null
        ? t.item.noChange
        : lookUp(t.itemState, entry.state)
  const code = (text: string | null): JSX.Element | null => (text === null ? null : <code>{text}</code>)
  return (
    <>
      <p>
        <strong>{what}</strong>
        {entry?.failure_class && ` (${lookUp(t.failureClass, entry.failure_class)})`} {code(entry?.reason_code ?? null)}
      </p>
      <p class="small">
        <Moment at={event.at} /> {entry !== null && lookUp(t.source, entry.source)}{' '}
        {event.actor !== null && t.operation.by(event.actor)} {t.item.inOperation}{' '}
        <OperationLink id={event.operation_id} />
        {event.replay_of !== null && (
          <>
            , {t.item.asReplayOf} <OperationLink id={event.replay_of} />
          </>
        )}
        {event.compensates !== null && (
          <>
            , {t.item.takesBack} <OperationLink id={event.compensates} />
          </>
        )}
      </p>
      {event.reason !== null && <p class="quote">{event.reason}</p>}
      {entry?.message && <p class="quote">{entry.message}</p>}
      {incidentId !== null && (
        <p class="small">
          <Link href={pathOf({ page: 'incident', id: incidentId })}>{t.pages.incidents}</Link>
        </p>
      )}
      {entry !== null && (
        <details class="small">
          <summary>{t.opensBelow}</summary>
          <Facts
            facts={[
              [t.operation.attempt, entry.attempt],
              [t.operation.step, entry.step],
              [t.item.effectKey, code(entry.effect_key)],
              [t.operation.effectRef, code(entry.effect_ref)],
              [t.item.evidence, code(entry.evidence_ref)],
              [t.item.inputHash, code(entry.input_hash)],
              [t.item.worker, code(entry.worker_id)],
              [t.item.codeVersion, code(entry.code_version)],
            ]}
          />
        </details>
      )}
    </>
  )
}
