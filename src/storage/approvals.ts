import type { Audited } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import { lockOperation } from './stops.ts'

export interface ApprovalDecision extends Audited {
  tenantId: number
  operationId: string
  actor: string
  note: string | null
}

/**
 * Whether somebody other than the requester has put items into the operation, has started it, or has started the bulk action
 * that made it: then an approval of theirs would be no second one. A bulk action signs the reason of what it makes with its id;
 * as anybody can write such a reason, it must also have used the preflight.
 */
export const hasHandIn = async (
  { sql }: Connection,
  { tenantId, operationId, name }: { tenantId: number; operationId: string; name: string },
): Promise<boolean> => {
  const [row] = await sql<{ found: boolean }>`
    select exists (
        select from operation_events e
        where e.tenant_id = ${tenantId} and e.operation_id = ${operationId}::uuid
          and e.kind in ('items_added', 'draft_closed') and e.actor = ${name})
      or exists (
        select from operations o
          join bulk_actions b on b.tenant_id = o.tenant_id
            and b.id = substring(o.reason from '\\(bulk_([0-9a-f]{32})\\)$')::uuid
          join bulk_action_targets t on t.tenant_id = b.tenant_id and t.bulk_id = b.id and t.preflight_id = o.preflight_id
        where o.tenant_id = ${tenantId} and o.id = ${operationId}::uuid and b.started_by = ${name}) as found`
  return row?.found ?? false
}

/**
 * Lets a waiting operation run, as soon as it waits for no other one either. False: it does not wait for an approval (any
 * more).
 */
export const approve = (database: Database, decision: ApprovalDecision): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: lockOperation(sql, decision),
    work: sql`
      with o as (
        update operations set
          status = 'pending', approval_decision = 'approved', approval_by = ${decision.actor},
          approval_at = clock_timestamp(), approval_note = ${decision.note}, version = version + 1
        where tenant_id = ${decision.tenantId} and id = ${decision.operationId}::uuid and status = 'awaiting_approval'
          and cancel_requested_at is null
        returning tenant_id, id, version, status, run_after, after_open),
      going as (
        update operation_shards s set
          state = case when o.after_open then 'done' else 'ready' end, version = s.version + 1, run_at = greatest(now(), o.run_after)
        from o where s.tenant_id = o.tenant_id and s.operation_id = o.id),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
        select tenant_id, id, version, 'approved', status, ${decision.actor}, ${decision.note} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(decision.audit)}::text::jsonb) a)
      select 1 from o`.then((rows) => rows.length > 0),
  }))

/**
 * Ends a waiting operation: it is `cancelled`, with the note as its reason, and nothing of it ever ran. The webhook that tells
 * of it is written with it (webhook-outbox.ts).
 */
export const reject = (database: Database, decision: ApprovalDecision): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: lockOperation(sql, decision),
    work: sql`
      with o as (
        update operations set
          status = 'cancelled', approval_decision = 'rejected', approval_by = ${decision.actor},
          approval_at = clock_timestamp(), approval_note = ${decision.note}, cancel_requested_at = clock_timestamp(),
          cancel_requested_by = ${decision.actor}, cancel_reason = coalesce(${decision.note}, 'the approval was refused'),
          after_open = false, completed_at = clock_timestamp(), version = version + 1
        where tenant_id = ${decision.tenantId} and id = ${decision.operationId}::uuid and status = 'awaiting_approval'
          and cancel_requested_at is null
        returning tenant_id, id, version, status, items_total, completed_at, callback_url),
      stopped as (
        update operation_shards s set
          stop_requested = 'cancel', stop_seen_at = clock_timestamp(), version = s.version + 1
        from o where s.tenant_id = o.tenant_id and s.operation_id = o.id
        returning s.version),
      webhook as (
        insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, url, facts)
        select tenant_id, id, version, 'operation.settled', status, callback_url,
          jsonb_build_object('timestamp', clock_timestamp(),
            'version', o.version + (select coalesce(sum(version), 0) from stopped),
            'counts', jsonb_build_object('total', items_total, 'applied', 0, 'skipped', 0, 'failed', 0, 'uncertain', 0),
            'completed_at', completed_at)
        from o where callback_url is not null),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
        select tenant_id, id, version, 'rejected', status, ${decision.actor}, ${decision.note} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(decision.audit)}::text::jsonb) a)
      select 1 from o`.then((rows) => rows.length > 0),
  }))
