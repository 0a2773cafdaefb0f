import type { Connection } from './database.ts'

/** Per type, of one tenant; figures over a day, but for what waits or is open now. */
export interface TypeFiguresRow {
  type: string
  oldestWaitingSeconds: number | null
  deadLetters: number
  cancelToFinalP95Seconds: number | null
  outcomes: number
  uncertain: number
  casesOpenOver24h: number
}

/**
 * All but the audit in one statement. Sums of shards are taken over operations of the last day: those are judged, and
 * the statement stays as cheap as the day was busy.
 */
export const readTypeFigures = ({ sql }: Connection, tenantId: number): Promise<TypeFiguresRow[]> =>
  sql<TypeFiguresRow>`
    with recent as materialized (
      select id, type, cancel_requested_at, completed_at from operations
      where tenant_id = ${tenantId} and created_at > now() - interval '1 day'),
    waiting as (
      select type, extract(epoch from now() - min(run_at))::float8 as seconds from operation_shards
      where tenant_id = ${tenantId} and state = 'ready' and run_at <= now() and stop_requested is null group by type),
    dead as (select type, count(*)::float8 as letters from dead_letters where tenant_id = ${tenantId} group by type),
    cancels as (
      select type, percentile_cont(0.95) within group (order by extract(epoch from completed_at - cancel_requested_at))::float8 as p95
      from recent where cancel_requested_at is not null and completed_at is not null group by type),
    sums as (
      select r.type, sum(s.applied + s.skipped + s.failed + s.uncertain)::float8 as outcomes, sum(s.uncertain)::float8 as uncertain
      from recent r join operation_shards s on s.tenant_id = ${tenantId} and s.operation_id = r.id group by r.type),
    overdue as (
      select type, count(*)::float8 as cases from reconciliation_cases
      where tenant_id = ${tenantId} and closed_at is null and opened_at < now() - interval '24 hours' group by type)
    select type, w.seconds as "oldestWaitingSeconds", coalesce(d.letters, 0) as "deadLetters",
      c.p95 as "cancelToFinalP95Seconds", coalesce(s.outcomes, 0) as outcomes, coalesce(s.uncertain, 0) as uncertain,
      coalesce(o.cases, 0) as "casesOpenOver24h"
    from waiting w full join dead d using (type) full join cancels c using (type) full join sums s using (type)
      full join overdue o using (type)`

export interface TypeAuditRow {
  type: string
  effectsAfterCancel: number
  ledgerRowsMissing: number
}

/** The audit reads every item of the operations it looks at, so it looks at few, and at none that is huge. */
const AUDITED_OPERATIONS_MAX = 20
const AUDITED_ITEMS_MAX = 10_000

/**
 * The newest operations of the last day, item by item: effects claimed after the cancel was requested, and items that
 * the counters have an outcome for and the ledger has not. Only final ones: counters and ledger of others still move.
 */
export const readTypeAudit = ({ sql }: Connection, tenantId: number): Promise<TypeAuditRow[]> =>
  sql<TypeAuditRow>`
    with audited as materialized (
      select id, type, cancel_requested_at from operations
      where tenant_id = ${tenantId} and created_at > now() - interval '1 day' and completed_at is not null
        and items_total <= ${AUDITED_ITEMS_MAX}
      order by created_at desc limit ${AUDITED_OPERATIONS_MAX}),
    late as (
      select a.type, count(*)::float8 as effects
      from audited a
        join operation_items i on i.tenant_id = ${tenantId} and i.operation_id = a.id
        join effects e on e.tenant_id = ${tenantId} and e.effect_key = i.effect_key and e.operation_id = a.id
      where e.claimed_at > a.cancel_requested_at group by a.type),
    counted as (
      select a.type, sum(s.outcomes)::float8 as outcomes, sum(l.entries)::float8 as entries
      from audited a,
        lateral (select coalesce(sum(applied + skipped + failed + uncertain), 0) as outcomes
          from operation_shards where tenant_id = ${tenantId} and operation_id = a.id) s,
        lateral (select count(distinct ord) as entries
          from ledger_entries where tenant_id = ${tenantId} and operation_id = a.id and state is not null) l
      group by a.type)
    select type, coalesce(l.effects, 0) as "effectsAfterCancel",
      greatest(c.outcomes - c.entries, 0)::float8 as "ledgerRowsMissing"
    from counted c left join late l using (type)`
