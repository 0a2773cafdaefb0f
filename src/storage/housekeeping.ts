/**
 * What workers do now and then. Each deletes a bounded number of rows, and passes over those that another session has in
 * hand: two janitors never wait for each other, so they cannot wait in a circle.
 */
import type { Connection } from './connection.ts'

const MONTHS_AHEAD = 4
/** Covers the week that `usual` figures are learned from. */
const MINUTES_KEPT_DAYS = 9
const WORKERS_KEPT_HOURS = 24
/** A preflight that led to a replay is kept with it. */
const PREFLIGHTS_KEPT_DAYS = 30
/** Providers repeat an event for days, not weeks; what an event did stands in the ledger. */
const CALLBACKS_KEPT_DAYS = 30
/** Of a dry run that nobody started. */
const DRY_RUNS_KEPT_DAYS = 30
const DRY_RUNS_PER_RUN = 100
const ROWS_PER_RUN = 10_000
/** pg_advisory_xact_lock key: "partings" in hex, cut to 63 bits. */
const PARTITIONS_LOCK = '8097879449299478387'

/** Two that make the same partition at once would collide: while another session does it, this one leaves it to that one. */
export const ensureLedgerPartitions = async ({ sql }: Connection): Promise<void> => {
  await sql`
    select case when pg_try_advisory_xact_lock(${PARTITIONS_LOCK}::bigint)
      then ensure_ledger_partitions(now(), ${MONTHS_AHEAD}) end`
}

export const forgetGoneWorkers = async ({ sql }: Connection): Promise<void> => {
  await sql`
    with old as materialized (
      select id from workers where last_seen_at < now() - ${WORKERS_KEPT_HOURS} * interval '1 hour'
      limit ${ROWS_PER_RUN} for update skip locked)
    delete from workers w using old where w.id = old.id`
}

export const forgetOldMinutes = async ({ sql }: Connection): Promise<void> => {
  await sql`
    with old as materialized (
      select type, minute, worker_id from type_minutes where minute < now() - ${MINUTES_KEPT_DAYS} * interval '1 day'
      limit ${ROWS_PER_RUN} for update skip locked)
    delete from type_minutes m using old where m.type = old.type and m.minute = old.minute and m.worker_id = old.worker_id`
}

export const forgetUnusedPreflights = async ({ sql }: Connection): Promise<void> => {
  await sql`
    with old as materialized (
      select tenant_id, id from replay_preflights
      where used_by is null and expires_at < now() - ${PREFLIGHTS_KEPT_DAYS} * interval '1 day'
      limit ${ROWS_PER_RUN} for update skip locked)
    delete from replay_preflights p using old where p.tenant_id = old.tenant_id and p.id = old.id`
}

/** What is still to be judged is kept, however old. */
export const forgetOldCallbacks = async ({ sql }: Connection): Promise<void> => {
  await sql`
    with old as materialized (
      select type, event_id from callback_inbox where processed_at < now() - ${CALLBACKS_KEPT_DAYS} * interval '1 day'
      limit ${ROWS_PER_RUN} for update skip locked)
    delete from callback_inbox c using old where c.type = old.type and c.event_id = old.event_id`
}

export const forgetOldDryRuns = async ({ sql }: Connection): Promise<void> => {
  await sql`
    with old as materialized (
      select tenant_id, id from bulk_actions
      where status = 'dry_run' and expires_at < now() - ${DRY_RUNS_KEPT_DAYS} * interval '1 day'
      limit ${DRY_RUNS_PER_RUN} for update skip locked),
    target as (
      delete from bulk_action_targets t using old where t.tenant_id = old.tenant_id and t.bulk_id = old.id)
    delete from bulk_actions b using old where b.tenant_id = old.tenant_id and b.id = old.id`
}
