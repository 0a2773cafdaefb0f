/** I7 and I8: when all is over, each operation is final, or open for a reason that was given. */
import { setTimeout as sleep } from 'node:timers/promises'
import type postgres from 'postgres'
import { formatId } from '../../src/domain/ids.ts'
import type { OperationStatus } from '../../src/domain/operation.ts'
import { uuidOf } from './states-account.ts'
import type { Violation } from './violation.ts'

export interface OpenOperation {
  /** `op_…`. */
  id: string
  type: string
  status: OperationStatus
}

interface EndRow {
  id: string
  type: string
  status: OperationStatus
  completed_ms: number | null
  shards: string
  waiting: number
  in_flight: number
  cases: number
}

const readEnd = (sql: postgres.Sql, ids: readonly string[]): Promise<EndRow[]> => sql<EndRow[]>`
  select o.id, o.type, o.status, (extract(epoch from o.completed_at) * 1000)::float8 as completed_ms,
    coalesce(s.states, 'none') as shards, coalesce(s.waiting, 0)::int as waiting, coalesce(s.in_flight, 0)::int as in_flight,
    (select count(*)::int from reconciliation_cases c
      where c.tenant_id = o.tenant_id and c.operation_id = o.id and c.closed_at is null) as cases
  from operations o left join lateral (
    select string_agg(distinct state, ', ') as states, sum(waiting) as waiting, sum(in_flight) as in_flight
    from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id) s on true
  where o.id = any(${ids as string[]}::uuid[]) order by o.id`

export const checkEnd = async (
  sql: postgres.Sql,
  ids: readonly string[],
  { open, deadline }: { open: (operation: OpenOperation) => boolean; deadline: number | null },
): Promise<Violation[]> => {
  const rows = await readEnd(sql, ids)
  return rows.flatMap(({ id, type, status, completed_ms, shards, waiting, in_flight, cases }): Violation[] => {
    const subject = formatId('op', id)
    if (completed_ms !== null) {
      if (deadline === null || completed_ms <= deadline) return []
      const late = Math.round(completed_ms - deadline)
      return [{ invariant: 'I8', subject, says: `became ${status} ${late} ms after its time` }]
    }
    if (in_flight > 0) {
      return [{ invariant: 'I8', subject, says: `is ${status} with ${in_flight} effects in flight` }]
    }
    if (open({ id: subject, type, status })) return []
    const says = `is still ${status}: shards ${shards}, ${waiting} waiting, ${cases} open cases`
    return [{ invariant: 'I8', subject, says }]
  })
}

const POLL_MS = 100

/** Waits until every operation is final or may be open, `withinMs` at most. Says nothing: `checkInvariants` does. */
export const waitUntilSettled = async (
  sql: postgres.Sql,
  ids: readonly string[],
  { withinMs, open = () => false }: { withinMs: number; open?: (operation: OpenOperation) => boolean },
): Promise<void> => {
  const until = performance.now() + withinMs
  for (;;) {
    const rows = await readEnd(sql, ids.map(uuidOf))
    const isOver = rows.every(
      (row) => row.completed_ms !== null || (row.in_flight === 0 && open({ ...row, id: formatId('op', row.id) })),
    )
    if (isOver || performance.now() > until) return
    await sleep(POLL_MS)
  }
}
