/** Operations and their events: what was accepted is there, and no status was reached that may not follow the one before. */
import type postgres from 'postgres'
import { parseId } from '../../src/domain/ids.ts'
import { canTransition, FINAL_STATUSES, isFinal, type OperationStatus } from '../../src/domain/operation.ts'
import { type Call, CREATING, isAccepted } from './history.ts'
import type { Violation } from './violation.ts'

/** Of an id as clients know it. */
export const uuidOf = (id: string): string => {
  const uuid = parseId('op', id)
  if (uuid === null) throw new Error(`${id} is no id of an operation`)
  return uuid
}

/** I1 and I6 by the rows: each id of a 2xx, under its key; and each cancel that was answered. */
export const checkAccepted = async (sql: postgres.Sql, calls: readonly Call[]): Promise<Violation[]> => {
  const accepted = calls.filter(isAccepted)
  const ids = [...new Set(accepted.flatMap((call) => (call.operationId === null ? [] : [uuidOf(call.operationId)])))]
  const rows = await sql<{ id: string; key: string | null; cancelled: boolean }[]>`
    select id, idempotency_key as key, cancel_requested_at is not null or status = 'cancelled' as cancelled
    from operations where id = any(${ids}::uuid[])`
  const stored = new Map(rows.map((row) => [row.id, row]))
  const found = new Map<string, Violation>()
  const says = (invariant: Violation['invariant'], call: Call, text: string): void =>
    void found.set(`${call.operationId} ${text}`, { invariant, subject: call.operationId ?? '', says: text })
  for (const call of accepted) {
    if (call.operationId === null) continue
    const row = stored.get(uuidOf(call.operationId))
    if (row === undefined) says('I1', call, `a ${call.kind} was answered ${call.outcome.status}, and it does not exist`)
    else if (CREATING.includes(call.kind) && call.key !== null && row.key !== call.key) {
      says('I1', call, `was accepted under the key ${call.key}, and has ${row.key}`)
    } else if (call.kind === 'cancel' && !row.cancelled) says('I6', call, 'a cancel was answered, and is forgotten')
  }
  return [...found.values()]
}

type StateRow =
  | { what: 'change'; operation_id: string; version: number; status: OperationStatus; before: OperationStatus | null }
  | { what: 'mismatch'; operation_id: string; says: string }

/** I5: the events of an operation are its versions, one by one; each status may follow the one before; the last one is its own. */
export const checkStates = async (sql: postgres.Sql, ids: readonly string[]): Promise<Violation[]> => {
  const rows = await sql<StateRow[]>`
    with e as materialized (
      select e.operation_id, e.version, e.kind, e.status, lag(e.status) over w as before
      from operations o join operation_events e on e.tenant_id = o.tenant_id and e.operation_id = o.id
      where o.id = any(${ids as string[]}::uuid[])
      window w as (partition by e.operation_id order by e.version)),
    n as (
      select operation_id, count(*) as events, max(version) as last, (array_agg(status order by version desc))[1] as status,
        count(*) filter (where kind = 'settled') as settled
      from e group by operation_id)
    select 'change' as what, operation_id, version::int, status, before, null as says from e
    where before is distinct from status
    union all
    select 'mismatch', o.id, null, null, null, format('is %s at version %s and %s; its %s events end at %s with %s, %s of them final',
      o.status, o.version, case when o.completed_at is null then 'open' else 'over' end, n.events, n.last, n.status, n.settled)
    from operations o left join n on n.operation_id = o.id
    where o.id = any(${ids as string[]}::uuid[]) and ((n.events, n.last, n.status) is distinct from (o.version, o.version, o.status)
      or n.settled <> case when o.completed_at is null then 0 else 1 end
      or (o.completed_at is not null) <> (o.status = any(${[...FINAL_STATUSES]}::text[])))`
  return rows.flatMap((row): Violation[] =>
    row.what === 'mismatch' ? [{ invariant: 'I5', subject: row.operation_id, says: row.says }] : judgeChange(row),
  )
}

const judgeChange = ({ operation_id, version, status, before }: StateRow & { what: 'change' }): Violation[] => {
  if (before === null || canTransition(before, status)) return []
  const says = isFinal(before)
    ? `left ${before} for ${status}`
    : `went from ${before} to ${status}, which is no transition`
  return [{ invariant: 'I5', subject: operation_id, says: `${says} (version ${version})` }]
}
