/**
 * What must hold, read in three ways that do not know of each other: by the API, by SQL, and from the log of the effect
 * server. Each function answers with the violations it found.
 */
import type postgres from 'postgres'

export interface OperationState {
  id: string
  status: string
  version: number
  counts: Record<'total' | 'applied' | 'skipped' | 'failed' | 'uncertain' | 'unprocessed' | 'in_flight', number>
}

export interface EffectEntry {
  requests: number
  applied: number
}

const FINAL = ['succeeded', 'partially_succeeded', 'failed', 'cancelled', 'completed_after_cancel']
export const isFinal = ({ status }: Pick<OperationState, 'status'>): boolean => FINAL.includes(status)

/** P2 as a client sees it, between two polls of one operation. */
export const checkPoll = (now: OperationState, before: OperationState | undefined): string[] => {
  const { applied, skipped, failed, uncertain, unprocessed, in_flight, total } = now.counts
  const found: string[] = []
  if (applied + skipped + failed + uncertain + unprocessed !== total) {
    found.push(`${now.id}: the counts ${JSON.stringify(now.counts)} do not add up`)
  }
  if (in_flight > unprocessed + failed + uncertain) found.push(`${now.id}: ${in_flight} in flight of ${unprocessed}`)
  if (before === undefined) return found
  if (now.version < before.version) found.push(`${now.id}: version ${before.version} became ${now.version}`)
  if (isFinal(before) && now.status !== before.status) found.push(`${now.id}: left ${before.status} for ${now.status}`)
  if (now.counts.applied < before.counts.applied) found.push(`${now.id}: applied ${before.counts.applied} fell`)
  return found
}

const uuidOf = (id: string): string => id.replace(/^op_/, '')

/** P2 as the database has it: the counters of the shards against the latest entry of every item, in one snapshot. */
export const checkCounters = async (sql: postgres.Sql, operations: readonly string[]): Promise<string[]> => {
  const ids = operations.map(uuidOf)
  const rows = await sql<{ operation_id: string; counters: string; ledger: string }[]>`
    with latest as (
      select distinct on (operation_id, ord) operation_id, ord, state, failure_class
      from ledger_entries where operation_id = any(${ids}::uuid[]) and state is not null
      order by operation_id, ord, seq desc),
    ledger as (
      select operation_id, concat_ws(' ', count(*) filter (where state = 'applied'),
        count(*) filter (where state = 'skipped'), count(*) filter (where state = 'failed'),
        count(*) filter (where state = 'uncertain'), count(*) filter (where failure_class = 'transient')) as said
      from latest group by operation_id),
    counters as (
      select operation_id, concat_ws(' ', sum(applied), sum(skipped), sum(failed), sum(uncertain),
        sum(failed_transient)) as said
      from operation_shards where operation_id = any(${ids}::uuid[]) group by operation_id)
    select c.operation_id, c.said as counters, coalesce(l.said, '0 0 0 0 0') as ledger
    from counters c left join ledger l using (operation_id)
    where c.said <> coalesce(l.said, '0 0 0 0 0')`
  return rows.map((row) => `${row.operation_id}: counters ${row.counters}, ledger ${row.ledger}`)
}

/** When all is over: one final event an operation, one `applied` an item, nothing open, nothing waiting. */
export const checkEnd = async (sql: postgres.Sql, operations: readonly string[]): Promise<string[]> => {
  const ids = operations.map(uuidOf)
  const rows = await sql<{ what: string; n: string }[]>`
    select 'operations without exactly one final event' as what, count(*) as n from (
      select o.id from operations o left join operation_events e on e.tenant_id = o.tenant_id and e.operation_id = o.id
        and e.status = any(${FINAL})
      where o.id = any(${ids}::uuid[])
      group by o.id having count(e.*) <> 1) as off
    union all
    select 'items without exactly one applied entry', count(*) from (
      select i.ord from operation_items i left join ledger_entries l on l.tenant_id = i.tenant_id
        and l.operation_id = i.operation_id and l.ord = i.ord and l.state = 'applied'
      where i.operation_id = any(${ids}::uuid[])
      group by i.operation_id, i.ord having count(l.*) <> 1) as off
    union all select 'open cases', count(*) from reconciliation_cases where resolution is null
    union all select 'contradictions', count(*) from reconciliation_cases
      where cause in ('contradiction', 'duplicate_suspected')
    union all select 'waiting retries', count(*) from item_retries
    union all select 'dead letters', count(*) from dead_letters
    union all select 'shards not done', count(*) from operation_shards where state <> 'done' or in_flight <> 0
    union all select 'effects not applied', count(*) from effects where state <> 'applied'`
  return rows.filter(({ n }) => n !== '0').map(({ what, n }) => `${n} ${what}`)
}

/** What the outside world holds of the given keys: nothing twice, nothing missing. */
export const judgeEffects = (
  keys: readonly string[],
  applied: (key: string) => number,
): { twice: string[]; lost: string[] } => ({
  twice: keys.filter((key) => applied(key) > 1),
  lost: keys.filter((key) => applied(key) === 0),
})
