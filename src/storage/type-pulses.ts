import type { Connection } from './connection.ts'

export interface TypePulseRow {
  downstreamErrors5m: { count: number; calls: number }
  liveWorkers: number
}

/** Per `name@version`: live workers that run it, and the downstream errors of its last five minutes. */
export const readTypePulses = async ({ sql }: Connection): Promise<Map<string, TypePulseRow>> => {
  const rows = await sql<{ name: string; workers: number; calls: number; errors: number }>`
    with live as (
      select t.name, count(*)::int as workers
      from workers w, jsonb_array_elements_text(w.types) as t (name)
      where w.state <> 'gone' and w.last_seen_at > now() - 2 * w.beat_ms * interval '1 ms'
      group by t.name),
    recent as (
      select type, sum(calls)::float8 as calls, sum(errors)::float8 as errors from type_minutes
      where minute > now() - interval '5 minutes' group by type)
    select l.name, l.workers, coalesce(r.calls, 0) as calls, coalesce(r.errors, 0) as errors
    from live l left join recent r on r.type = split_part(l.name, '@', 1)`
  return new Map(
    rows.map((row) => [
      row.name,
      { downstreamErrors5m: { count: row.errors, calls: row.calls }, liveWorkers: row.workers },
    ]),
  )
}
