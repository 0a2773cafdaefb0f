/**
 * How the targets of a bulk action are worked on, by any number of workers.
 *
 * State of a target:   pending ──claim──▶ in hand ──begin──▶ begun ──record──▶ done | refused | failed
 *                         ▲                  │                 │
 *                         └── the claim runs out, or "again" ──┘        pending, not begun ──abort──▶ skipped
 *
 * `claims` is the fence: it grows with every claim, and begin, the note of a preflight, and record name theirs. `due_at` is
 * when a pending target may be claimed (again); whoever has it in hand pushes it out. The rate is `next_at` of the action,
 * moved by the claim: it holds over all workers, and no timer has a say in it.
 *
 * An abort wins: begin reads the status under the lock of the action, the same that the abort takes. So a target is begun
 * before the abort, and gets the outcome that it comes to, or it is skipped; nothing is begun afterwards.
 *
 * Why a crash at each line is safe, and each target is acted on once:
 *  claimed, not begun        the claim runs out; another worker claims it, or the abort skips it.
 *  begun, action not done    the same, and it is done then. After an abort it is not done any more, only looked at.
 *  cancel done, not recorded a repeat finds the cancel and records it: a cancel is idempotent.
 *  preflight made, not noted it is forgotten by housekeeping; the repeat makes another.
 *  preflight noted           the replay is made with it, by whoever comes next: a preflight is used once, and names its replay.
 *  replay made, not recorded the repeat asks with the same preflight and is told the same replay.
 *  recorded                  outcome and counts of the action moved in one commit.
 * A worker that lost its claim writes nothing. What it still does is the same cancel, or the same replay of the same
 * preflight; one whose facts have moved since is refused by the replay itself, under the lock of the operation. Stated limit:
 * one that is suspended between begin and its single action, and comes back when its target was given up or looked at after
 * an abort, still does that one action; the operation tells so, the target does not.
 *
 * Lock order: bulk action → its targets. No transaction here touches an operation.
 */
import type { BulkActionKind, BulkScope, BulkTargetState } from '../domain/bulk-action.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'

/** A claim that is not renewed for so long is its worker's no more. */
export const CLAIM_SECONDS = 60
/** Claims at once are what the rate allows in so many seconds, and so much time that was not used is made up for. */
const BURST_SECONDS = 0.25

export interface ClaimedTarget {
  tenantId: number
  bulkId: string
  ord: number
  operationId: string
  claims: number
  begun: boolean
  preflightId: string | null
  action: BulkActionKind
  scope: BulkScope | null
  reason: string
  requestedBy: string
  requesterScopes: string[]
  /** Aborted: it was begun by a worker that died, and is only looked at. */
  aborted: boolean
}

/** Claims what is due of the one action that has waited longest, as much of it as its rate allows now. */
export const claimBulkTargets = async ({ sql }: Connection): Promise<ClaimedTarget[]> =>
  sql<ClaimedTarget>`
    with b as materialized (
      select tenant_id, id, action, status, scope, reason, requested_by, requester_scopes, rate_per_second
      from bulk_actions
      where completed_at is null and status in ('running', 'aborted') and next_at <= clock_timestamp()
      order by next_at limit 1
      for no key update skip locked),
    pick as materialized (
      select t.tenant_id, t.bulk_id, t.ord from b join bulk_action_targets t on t.tenant_id = b.tenant_id and t.bulk_id = b.id
      -- what is pending after an abort was begun before it
      where t.state = 'pending' and t.due_at <= clock_timestamp()
      order by t.ord
      limit (select ceil(rate_per_second * ${BURST_SECONDS}::float8)::int from b)
      for no key update of t skip locked),
    paced as (
      -- an action whose targets are all in hand lets the next one come first
      update bulk_actions a set next_at = case p.n
        when 0 then clock_timestamp() + ${BURST_SECONDS}::float8 * interval '1 second'
        else greatest(a.next_at, clock_timestamp() - ${BURST_SECONDS}::float8 * interval '1 second')
          + p.n / a.rate_per_second::float8 * interval '1 second' end
      from b, (select count(*)::int as n from pick) p
      where a.tenant_id = b.tenant_id and a.id = b.id)
    update bulk_action_targets t set claims = t.claims + 1, due_at = clock_timestamp() + ${CLAIM_SECONDS} * interval '1 second'
    from pick p, b
    where t.tenant_id = p.tenant_id and t.bulk_id = p.bulk_id and t.ord = p.ord
    returning t.tenant_id as "tenantId", t.bulk_id as "bulkId", t.ord, t.operation_id as "operationId", t.claims,
      t.begun_at is not null as begun, t.preflight_id as "preflightId", b.action, b.scope, b.reason,
      b.requested_by as "requestedBy", b.requester_scopes as "requesterScopes", b.status = 'aborted' as aborted`

type TargetKey = Pick<ClaimedTarget, 'tenantId' | 'bulkId' | 'ord' | 'claims'>

/** Keeps a claim while its work goes on. */
export const renewClaim = async ({ sql }: Connection, target: TargetKey): Promise<void> => {
  await sql`
    update bulk_action_targets set due_at = clock_timestamp() + ${CLAIM_SECONDS} * interval '1 second'
    where tenant_id = ${target.tenantId} and bulk_id = ${target.bulkId}::uuid and ord = ${target.ord}
      and claims = ${target.claims} and state = 'pending'`
}

/** The last moment in which an abort wins. False: it has, or the claim is lost; nothing may be done. */
export const beginTarget = (database: Database, target: TargetKey): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from bulk_actions where tenant_id = ${target.tenantId} and id = ${target.bulkId}::uuid for no key update`,
    work: sql`
      update bulk_action_targets t set begun_at = coalesce(t.begun_at, clock_timestamp())
      from bulk_actions b
      where b.tenant_id = ${target.tenantId} and b.id = ${target.bulkId}::uuid and b.status = 'running'
        and t.tenant_id = b.tenant_id and t.bulk_id = b.id and t.ord = ${target.ord} and t.claims = ${target.claims}
        and t.state = 'pending'
      returning 1`.then((rows) => rows.length > 0),
  }))

/** Notes the preflight that the replay is about to use; null: the one noted cannot be used any more. False: the claim is lost. */
export const notePreflight = async (
  { sql }: Connection,
  target: TargetKey,
  preflightId: string | null,
): Promise<boolean> => {
  const rows = await sql`
    update bulk_action_targets set preflight_id = ${preflightId}::uuid
    where tenant_id = ${target.tenantId} and bulk_id = ${target.bulkId}::uuid and ord = ${target.ord}
      and claims = ${target.claims} and state = 'pending'
    returning 1`
  return rows.length > 0
}

/** Gives a target back, to be claimed again. */
export const giveTargetBack = async ({ sql }: Connection, target: TargetKey, afterMs: number): Promise<void> => {
  await sql`
    update bulk_action_targets set due_at = clock_timestamp() + ${afterMs} * interval '1 millisecond'
    where tenant_id = ${target.tenantId} and bulk_id = ${target.bulkId}::uuid and ord = ${target.ord}
      and claims = ${target.claims} and state = 'pending'`
}

export interface TargetOutcome {
  state: Exclude<BulkTargetState, 'pending'>
  code: string | null
  detail: string | null
  blockedBy: readonly string[]
  resultOperationId: string | null
}

/** Writes the outcome of a target, and with it the counts of the action, which is over with its last one. */
export const recordOutcome = (database: Database, target: TargetKey, outcome: TargetOutcome): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from bulk_actions where tenant_id = ${target.tenantId} and id = ${target.bulkId}::uuid for no key update`,
    work: sql`
      with t as (
        update bulk_action_targets set
          state = ${outcome.state}, code = ${outcome.code}, detail = ${outcome.detail},
          blocked_by = ${JSON.stringify(outcome.blockedBy)}::text::jsonb,
          result_operation_id = ${outcome.resultOperationId}::uuid, at = clock_timestamp()
        where tenant_id = ${target.tenantId} and bulk_id = ${target.bulkId}::uuid and ord = ${target.ord}
          and claims = ${target.claims} and state = 'pending'
        returning tenant_id, bulk_id, state)
      update bulk_actions b set
        done = b.done + (t.state = 'done')::int, refused = b.refused + (t.state = 'refused')::int,
        failed = b.failed + (t.state = 'failed')::int, skipped = b.skipped + (t.state = 'skipped')::int,
        status = case when b.status = 'running' and b.done + b.refused + b.failed + b.skipped + 1 = b.targets
          then 'finished' else b.status end,
        completed_at = case when b.done + b.refused + b.failed + b.skipped + 1 = b.targets then clock_timestamp() end
      from t where b.tenant_id = t.tenant_id and b.id = t.bulk_id
      returning 1`.then((rows) => rows.length > 0),
  }))
