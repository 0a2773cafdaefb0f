/**
 * I3 and I6 by the judge: the registry against what the outside world says, key by key.
 *
 * A key may have been done as often as the service can account for: once for the send that stands as `intent`, `uncertain` or
 * `applied`; once for each send that was undone; and once for each uncertain send that somebody closed as not applied. That
 * last evidence was then wrong, which no service can prevent: `wrongEvidence` names it. And no key is requested more often than
 * it was claimed.
 *
 * The judge is read before the database, so that what it has seen must be known there; and once more after it, for the keys
 * that are applied by the database: those the judge must have seen by then.
 */
import type postgres from 'postgres'
import type { EffectLog, Judge } from './effect-log.ts'
import type { Violation } from './violation.ts'

/** From the send to the judge's clock: a busy machine, not the network. What starts later than this is found. */
export const ARRIVAL_SLACK_MS = 500

interface KeyRow {
  effect_key: string
  operation_id: string
  state: string | null
  sends: number
  /** How often at most, and at least, it may have been done. */
  most: number
  least: number
  refuted: { send: number; source: string; by: string; evidence: string | null }[]
  /** Epoch ms; null: no cancel was acknowledged. */
  acknowledged_ms: number | null
}

export interface WrongEvidence {
  effectKey: string
  applied: number
  /** Who said of which send that it had not happened. */
  evidence: KeyRow['refuted']
}

const readKeys = (sql: postgres.Sql, ids: readonly string[], types: readonly string[]): Promise<KeyRow[]> => sql<
  KeyRow[]
>`
  with o as materialized (
    select * from operations where id = any(${ids as string[]}::uuid[]) and type = any(${types as string[]})),
  cancelled as materialized (
    select o.id, extract(epoch from greatest(o.cancel_requested_at, max(s.stop_seen_at))) * 1000 as acknowledged_ms
    from o left join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id
    where o.cancel_requested_at is not null
    group by o.id, o.cancel_requested_at having coalesce(bool_and(s.stop_seen_at is not null), true)),
  k as materialized (
    select distinct o.tenant_id, step_effect_key(i.effect_key, t.step) as effect_key, t.step
    from o join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id
      join operation_items i on i.tenant_id = s.tenant_id and i.operation_id = s.operation_id and i.ord >= s.from_ord
        and i.ord < s.to_ord
      cross join lateral unnest(case when s.steps = '{}' then array[''] else s.steps end) as t (step)),
  refuted as materialized (
    select c.tenant_id, c.effect_key, count(distinct c.send) as n, jsonb_agg(distinct jsonb_build_object('send', c.send,
      'source', c.resolution_source, 'by', c.resolved_by, 'evidence', c.evidence_ref)) as evidence
    from reconciliation_cases c
    where c.resolution = 'not_applied' and c.cause in ('send_outcome_unknown', 'worker_lost')
    group by c.tenant_id, c.effect_key),
  undone as materialized (
    select l.tenant_id, l.effect_key, count(distinct l.send) as n from ledger_entries l
    where l.reason_code = 'COMPENSATED' and l.state is null group by l.tenant_id, l.effect_key)
  select k.effect_key, coalesce(e.operation_id::text, '') as operation_id, e.state, coalesce(e.send, 0) as sends,
    (coalesce(r.n, 0) + coalesce(u.n, 0)
      + case when e.state in ('intent', 'uncertain', 'applied') then 1 else 0 end)::int as most,
    (case when k.step = '' then coalesce(u.n, 0) else 0 end
      + case when e.state = 'applied' and e.item_state = 'applied' then 1 else 0 end)::int as least,
    coalesce(r.evidence, '[]') as refuted, c.acknowledged_ms::float8 as acknowledged_ms
  from k left join effects e on e.tenant_id = k.tenant_id and e.effect_key = k.effect_key
    left join refuted r on r.tenant_id = k.tenant_id and r.effect_key = k.effect_key
    left join undone u on u.tenant_id = k.tenant_id and u.effect_key = k.effect_key
    left join cancelled c on c.id = e.operation_id`

/** The rows of one key are those of all tenants that have it: the judge knows no tenants. */
const sumOver = (rows: readonly KeyRow[]): KeyRow[] => {
  const byKey = new Map<string, KeyRow>()
  for (const row of rows) {
    const known = byKey.get(row.effect_key)
    if (known === undefined) byKey.set(row.effect_key, row)
    else {
      known.sends += row.sends
      known.most += row.most
      known.least += row.least
      known.refuted = [...known.refuted, ...row.refuted]
      known.acknowledged_ms = null
    }
  }
  return [...byKey.values()]
}

const NEVER = { requests: 0, applied: 0, arrivals: [], appliedAt: [] }

/** `mayBeLate`: keys whose requests were held back between the last check and the socket, on purpose. */
export const checkEffects = async (
  sql: postgres.Sql,
  ids: readonly string[],
  judge: Judge,
  { mayBeLate = () => false }: { mayBeLate?: ((key: string) => boolean) | undefined } = {},
): Promise<Violation[]> => {
  const before = await judge.read()
  const rows = sumOver(await readKeys(sql, ids, judge.types))
  const seen = rows.flatMap((row) => [
    ...judgeRepeats(row, before, judge),
    ...(mayBeLate(row.effect_key) ? [] : judgeLate(row, before)),
  ])
  const unproven = rows.filter((row) => (before[row.effect_key] ?? NEVER).applied < row.least)
  const after: EffectLog = unproven.length === 0 ? before : await judge.read()
  return [...seen, ...unproven.flatMap((row) => judgeMissing(row, after)), ...(await checkUnknown(sql, before))]
}

const judgeRepeats = (row: KeyRow, log: EffectLog, judge: Judge): Violation[] => {
  const { effect_key: subject, state, sends, most } = row
  const { applied, requests } = log[subject] ?? NEVER
  const found: Violation[] = []
  if (applied > most && !(judge.idempotent && most > 0)) {
    const says = `was done ${applied} times, and is ${state ?? 'unclaimed'}: ${most} of them can be accounted for`
    found.push({ invariant: 'I3', subject, says })
  }
  if (requests > sends)
    found.push({ invariant: 'I3', subject, says: `was sent ${requests} times and claimed ${sends} times` })
  return found
}

const judgeMissing = ({ effect_key: subject, least, state }: KeyRow, log: EffectLog): Violation[] => {
  const { applied } = log[subject] ?? NEVER
  return applied >= least
    ? []
    : [{ invariant: 'I3', subject, says: `is ${state}, and was done ${applied} times, not ${least}` }]
}

const judgeLate = ({ effect_key: subject, acknowledged_ms, operation_id }: KeyRow, log: EffectLog): Violation[] => {
  const last = (log[subject] ?? NEVER).arrivals.at(-1)
  if (acknowledged_ms === null || last === undefined || last <= acknowledged_ms + ARRIVAL_SLACK_MS) return []
  const ms = Math.round(last - acknowledged_ms)
  return [{ invariant: 'I6', subject, says: `was sent ${ms} ms after the cancel of ${operation_id} was acknowledged` }]
}

/** What the judge saw under a key that was never claimed, by no operation whatever. */
const checkUnknown = async (sql: postgres.Sql, log: EffectLog): Promise<Violation[]> => {
  const rows = await sql<{ key: string }[]>`
    select key from unnest(${Object.keys(log)}::text[]) as k (key)
    where not exists (select from effects e where e.tenant_id in (select id from tenants) and e.effect_key = k.key)`
  return rows.map(({ key }) => ({ invariant: 'I3', subject: key, says: 'was sent, and nobody has claimed it' }))
}

/** The keys that were done although somebody had said of a send that it was not: each is the fault of that evidence. */
export const wrongEvidence = async (
  sql: postgres.Sql,
  ids: readonly string[],
  judge: Judge,
): Promise<WrongEvidence[]> => {
  const rows = sumOver(await readKeys(sql, ids, judge.types))
  const log = await judge.read()
  return rows.flatMap(({ effect_key: effectKey, most, refuted }) => {
    const { applied } = log[effectKey] ?? NEVER
    return refuted.length > 0 && applied > most - new Set(refuted.map(({ send }) => send)).size
      ? [{ effectKey, applied, evidence: refuted }]
      : []
  })
}
