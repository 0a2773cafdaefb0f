import type { Connection } from './connection.ts'

/**
 * Reserves `calls` calls of a type at `perSecond` over all workers, and answers with the milliseconds to wait before they may
 * start. Generic cell rate: the row holds the time at which the next call is free; unused time is not saved up.
 */
export const reserveCalls = async (
  { sql }: Connection,
  type: string,
  perSecond: number,
  calls: number,
): Promise<number> => {
  const length = calls / perSecond
  const [row] = await sql<{ wait_ms: number }>`
    insert into type_rates as r (type, next_at) values (${type}, clock_timestamp() + ${length}::float8 * interval '1 second')
    on conflict (type) do update set
      next_at = greatest(r.next_at, clock_timestamp()) + ${length}::float8 * interval '1 second'
    returning greatest(0, extract(epoch from next_at - clock_timestamp()) - ${length}::float8)::float8 * 1000 as wait_ms`
  return row?.wait_ms ?? 0
}

/**
 * The same for somebody who can wait for `maxWaitMs` at most: where the wait is longer nothing is reserved, and the answer says
 * how long it would be.
 */
export const reserveCallsWithin = async (
  { sql }: Connection,
  type: string,
  { perSecond, calls, maxWaitMs }: { perSecond: number; calls: number; maxWaitMs: number },
): Promise<{ reserved: boolean; waitMs: number }> => {
  const length = calls / perSecond
  const [row] = await sql<{ wait_ms: number }>`
    insert into type_rates as r (type, next_at) values (${type}, clock_timestamp() + ${length}::float8 * interval '1 second')
    on conflict (type) do update set
      next_at = greatest(r.next_at, clock_timestamp()) + ${length}::float8 * interval '1 second'
    where r.next_at <= clock_timestamp() + ${maxWaitMs}::float8 * interval '1 ms'
    returning greatest(0, extract(epoch from next_at - clock_timestamp()) - ${length}::float8)::float8 * 1000 as wait_ms`
  if (row) return { reserved: true, waitMs: row.wait_ms }
  const [busy] = await sql<{ wait_ms: number }>`
    select greatest(0, extract(epoch from next_at - clock_timestamp()))::float8 * 1000 as wait_ms from type_rates
    where type = ${type}`
  return { reserved: false, waitMs: busy?.wait_ms ?? 0 }
}
