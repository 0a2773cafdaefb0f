import { emptyLatency, type Latency, latencyQuantile } from '../domain/latency.ts'
import { ints, texts } from './array-literal.ts'
import type { Connection } from './connection.ts'

/** What happened to a type since the last flush of one worker. */
export interface TypeDelta {
  type: string
  calls: number
  /** Calls that ended in a downstream error: 5xx, 429, timeout, broken connection. */
  errors: number
  /** Attempts that ended with an outcome, those that will be retried included. */
  items: number
  /** Of `items`: normal rejects, which are no outage. */
  rejected: number
  /** Attempts that were repetitions. */
  retries: number
  latency: Latency
}

/** Adds the deltas to the current minute of this worker, in database time, in one statement. */
export const addTypeMinutes = async (
  { sql }: Connection,
  workerId: string,
  deltas: readonly TypeDelta[],
): Promise<void> => {
  const column = (pick: (delta: TypeDelta) => number): string => ints(deltas.map(pick))
  await sql`
    insert into type_minutes as m (type, minute, worker_id, calls, errors, items, rejected, retries, latency)
    select u.type, date_trunc('minute', now()), ${workerId}::uuid, u.calls, u.errors, u.items, u.rejected, u.retries,
      u.latency::bigint[]
    from unnest(${texts(deltas.map((delta) => delta.type))}::text[], ${column((delta) => delta.calls)}::bigint[],
      ${column((delta) => delta.errors)}::bigint[], ${column((delta) => delta.items)}::bigint[],
      ${column((delta) => delta.rejected)}::bigint[], ${column((delta) => delta.retries)}::bigint[],
      ${texts(deltas.map((delta) => ints(delta.latency)))}::text[])
      as u (type, calls, errors, items, rejected, retries, latency)
    on conflict (type, minute, worker_id) do update set
      calls = m.calls + excluded.calls, errors = m.errors + excluded.errors, items = m.items + excluded.items,
      rejected = m.rejected + excluded.rejected, retries = m.retries + excluded.retries,
      latency = (
        select array_agg(coalesce(l.kept, 0) + coalesce(l.added, 0) order by l.bucket)
        from unnest(m.latency, excluded.latency) with ordinality as l (kept, added, bucket))`
}

/** A type over a window of whole minutes, all workers together. */
export interface TypeWindow {
  calls: number
  errors: number
  items: number
  rejected: number
  retries: number
  /** Null: no calls. */
  p95Ms: number | null
}

export const SILENT_WINDOW: Readonly<TypeWindow> = {
  calls: 0,
  errors: 0,
  items: 0,
  rejected: 0,
  retries: 0,
  p95Ms: null,
}

const P95 = 0.95

/** The last `minutes` (the current one included) of every type that did anything in them. */
export const readTypeWindows = async ({ sql }: Connection, minutes: number): Promise<Map<string, TypeWindow>> => {
  const rows = await sql<Omit<TypeWindow, 'p95Ms'> & { type: string; latency: number[] }>`
    with recent as materialized (
      select * from type_minutes where minute > now() - ${minutes}::int * interval '1 minute'),
    bucket as (
      select r.type, l.bucket, sum(l.calls) as calls
      from recent r, unnest(r.latency) with ordinality as l (calls, bucket) group by r.type, l.bucket),
    total as (
      select type, sum(calls)::float8 as calls, sum(errors)::float8 as errors, sum(items)::float8 as items,
        sum(rejected)::float8 as rejected, sum(retries)::float8 as retries
      from recent group by type)
    select t.*, coalesce(
      (select jsonb_agg(b.calls order by b.bucket) from bucket b where b.type = t.type), '[]') as latency
    from total t`
  return new Map(rows.map(({ type, latency, ...sums }) => [type, { ...sums, p95Ms: latencyQuantile(latency, P95) }]))
}

/** The last hour is judged against what came before it. */
const USUAL_DAYS = 7
/** Newest first: a busy type has a usual value of hours, one that runs once a day of a week. */
const USUAL_ROWS_MAX = 2_000

/** Fewer calls say nothing of what is usual. */
const USUAL_CALLS_MIN = 20

/** The usual p95 of each type, in ms: its last seven days without the last hour. Types with too few calls are missing. */
export const readUsualP95 = async ({ sql }: Connection, types: readonly string[]): Promise<Map<string, number>> => {
  const rows = await sql<{ type: string; latency: number[] }>`
    select t.type, jsonb_agg(b.calls order by b.bucket) as latency
    from unnest(${texts(types)}::text[]) as t (type), lateral (
      select l.bucket, sum(l.calls) as calls
      from (
        select latency from type_minutes
        where type = t.type and minute <= now() - interval '1 hour' and minute > now() - ${USUAL_DAYS}::int * interval '1 day'
          and calls > 0
        order by minute desc limit ${USUAL_ROWS_MAX}) m, unnest(m.latency) with ordinality as l (calls, bucket)
      group by l.bucket) b
    group by t.type`
  const usual = new Map<string, number>()
  for (const { type, latency } of rows) {
    const calls = latency.reduce((sum, count) => sum + count, 0)
    const p95Ms = calls < USUAL_CALLS_MIN ? null : latencyQuantile(latency, P95)
    if (p95Ms !== null) usual.set(type, p95Ms)
  }
  return usual
}

/** A delta to add to. */
export const emptyDelta = (type: string): TypeDelta => ({
  type,
  calls: 0,
  errors: 0,
  items: 0,
  rejected: 0,
  retries: 0,
  latency: emptyLatency(),
})
