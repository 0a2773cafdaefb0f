import type { AfterWhen } from '../domain/after.ts'
import type { OperationStatus } from '../domain/operation.ts'
import { ints, texts } from './array-literal.ts'
import type { Connection } from './connection.ts'

/** An operation and the sums of its shards, from one snapshot: what every poll shows. */
export interface OperationState {
  tenantId: number
  id: string
  type: string
  typeVersion: number
  codeVersion: string
  status: OperationStatus
  version: number
  itemsTotal: number
  applied: number
  skipped: number
  failed: number
  uncertain: number
  inFlight: number
  waiting: number
  failedTransient: number
  failedValidationRejected: number
  failedConflict: number
  failedPolicyDenied: number
  failedBugSuspected: number
  appliedAfterCancel: number
  lastProgressAt: string | null
  sinceProgressMs: number | null
  /** The leased shard whose lease is closest to its end. */
  sinceBeatMs: number | null
  beatLeaseMs: number | null
  /** The most attempts that one item without an outcome has used, as far as a poll can afford to know (see below). */
  attemptsMost: number
  requestedBy: string
  reason: string | null
  labels: Record<string, string>
  priority: number
  risk: string
  stopIf: string[]
  runAfter: string | null
  deadlineAt: string | null
  cancelRequestedAt: string | null
  cancelRequestedBy: string | null
  cancelReason: string | null
  cancelAcknowledgedAt: string | null
  approvalRequired: string | null
  approvalDecision: string | null
  approvalBy: string | null
  approvalAt: string | null
  approvalNote: string | null
  replayOf: string | null
  preflightId: string | null
  replayedBy: string[]
  compensates: string | null
  /** Without the replays of its compensations: those are in their `replayedBy`. */
  compensatedBy: string[]
  after: string[]
  afterWhen: AfterWhen | null
  /** Of `after`, those that have not ended yet, while it waits for them. */
  waitingFor: string[]
  error: { code: string; detail: string } | null
  callbackUrl: string | null
  createdAt: string
  startedAt: string | null
  completedAt: string | null
  itemsPurgedAt: string | null
  ledgerPurgedAt: string | null
  now: string
}

export interface OperationKey {
  tenantId: number
  id: string
}

/** A poll must stay cheap: among more waiting items, one with many attempts is no sign. */
const WAITING_LOOKED_AT_MAX = 100

/**
 * Any number of operations in one statement: concurrent polls share it. Unknown ones are missing from the answer.
 *
 * Attempts of an item: those of a waiting one but the one that it waits for; and the runs that were lost at one place without
 * a step, the present one only where it is charged to one item. Progress counts from the last time that the operation began
 * to run: what was paused had no progress to make.
 */
export const readOperationStates = async (
  { sql }: Connection,
  keys: readonly OperationKey[],
): Promise<OperationState[]> =>
  sql<OperationState>`
    select o.tenant_id as "tenantId", o.id, o.type, o.type_version as "typeVersion", o.code_version as "codeVersion",
      o.status, (o.version + s.version)::float8 as version, o.items_total::float8 as "itemsTotal",
      s.applied, s.skipped, s.failed, s.uncertain, s.in_flight as "inFlight", s.waiting,
      s.failed_transient as "failedTransient", s.failed_validation_rejected as "failedValidationRejected",
      s.failed_conflict as "failedConflict", s.failed_policy_denied as "failedPolicyDenied",
      s.failed_bug_suspected as "failedBugSuspected", s.applied_after_cancel as "appliedAfterCancel",
      s.last_progress_at as "lastProgressAt",
      (extract(epoch from clock_timestamp() - case when coalesce(s.last_progress_at, o.started_at) is not null
        then greatest(coalesce(s.last_progress_at, o.started_at), (select e.at from operation_events e
          where e.tenant_id = o.tenant_id and e.operation_id = o.id and e.status = 'running' and o.status = 'running'
          order by e.version desc limit 1)) end) * 1000)::float8 as "sinceProgressMs",
      s.since_beat_ms as "sinceBeatMs", s.beat_lease_ms as "beatLeaseMs",
      greatest(s.suspect_crashes, s.claims - 1, case when s.waiting between 1 and ${WAITING_LOOKED_AT_MAX} then (
        select max(r.attempt) - 1 from item_retries r where r.tenant_id = o.tenant_id and r.operation_id = o.id) end, 0)
        as "attemptsMost",
      o.requested_by as "requestedBy", o.reason, o.labels, o.priority, o.risk, o.stop_if as "stopIf",
      o.run_after as "runAfter", o.deadline_at as "deadlineAt", o.cancel_requested_at as "cancelRequestedAt",
      o.cancel_requested_by as "cancelRequestedBy", o.cancel_reason as "cancelReason",
      case when o.cancel_requested_at is not null and s.all_seen
        then greatest(o.cancel_requested_at, s.stop_seen_at) end as "cancelAcknowledgedAt",
      o.approval_required as "approvalRequired", o.approval_decision as "approvalDecision", o.approval_by as "approvalBy",
      o.approval_at as "approvalAt", o.approval_note as "approvalNote", o.replay_of as "replayOf", o.preflight_id as "preflightId",
      coalesce((select jsonb_agg(r.id order by r.id) from operations r
        where r.tenant_id = o.tenant_id and r.replay_of = o.id), '[]') as "replayedBy",
      o.compensates,
      coalesce((select jsonb_agg(c.id order by c.id) from operations c
        where c.tenant_id = o.tenant_id and c.compensates = o.id and c.replay_of is null), '[]') as "compensatedBy",
      o.after, o.after_when as "afterWhen",
      coalesce(case when o.after_open then (select jsonb_agg(d.after_id order by d.after_id) from operation_dependencies d
        where d.tenant_id = o.tenant_id and d.operation_id = o.id and d.ended_as is null) end, '[]') as "waitingFor",
      o.error, o.callback_url as "callbackUrl", o.created_at as "createdAt", o.started_at as "startedAt",
      o.completed_at as "completedAt", o.items_purged_at as "itemsPurgedAt", o.ledger_purged_at as "ledgerPurgedAt",
      clock_timestamp() as now
    from unnest(${ints(keys.map((key) => key.tenantId))}::int[], ${texts(keys.map((key) => key.id))}::uuid[]) as k (t, id)
      join operations o on o.tenant_id = k.t and o.id = k.id,
      lateral (
        select coalesce(sum(version), 0)::bigint as version, coalesce(sum(applied), 0)::float8 as applied,
          coalesce(sum(skipped), 0)::float8 as skipped, coalesce(sum(failed), 0)::float8 as failed,
          coalesce(sum(uncertain), 0)::float8 as uncertain, coalesce(sum(in_flight), 0)::float8 as in_flight,
          coalesce(sum(waiting), 0)::float8 as waiting, coalesce(sum(failed_transient), 0)::float8 as failed_transient,
          coalesce(sum(failed_validation_rejected), 0)::float8 as failed_validation_rejected,
          coalesce(sum(failed_conflict), 0)::float8 as failed_conflict,
          coalesce(sum(failed_policy_denied), 0)::float8 as failed_policy_denied,
          coalesce(sum(failed_bug_suspected), 0)::float8 as failed_bug_suspected,
          coalesce(sum(applied_after_cancel), 0)::float8 as applied_after_cancel,
          max(last_progress_at) as last_progress_at, max(claims) as claims,
          max(suspect_crashes) as suspect_crashes,
          coalesce(bool_and(stop_seen_at is not null), true) as all_seen, max(stop_seen_at) as stop_seen_at,
          max(extract(epoch from clock_timestamp() - lease_expires_at) * 1000 + lease_ms)
            filter (where state = 'leased')::float8 as since_beat_ms,
          max(lease_ms) filter (where state = 'leased') as beat_lease_ms
        from operation_shards where tenant_id = o.tenant_id and operation_id = o.id) s`
