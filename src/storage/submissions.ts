import type { AuditAuthor } from '../domain/audit.ts'
import { ints, sparseTexts, texts } from './array-literal.ts'
import type { Connection, TransactionConnection } from './connection.ts'

export interface SubmittedItem {
  key: string
  effectKey: string
  /** JSON text. */
  input: string
  inputHash: string
}

/** An operation with its items and shards, checked in full: what is left is to store it. */
export interface Submission {
  tenantId: number
  id: string
  type: string
  typeVersion: number
  codeVersion: string
  status: 'draft' | 'pending' | 'awaiting_approval'
  requestedBy: string
  reason: string | null
  labels: Record<string, string>
  priority: number
  runAfter: string | null
  deadlineAt: string | null
  risk: string
  stopIf: string[]
  approvalRequired: string | null
  idempotencyKey: string | null
  requestHash: string
  traceparent: string | null
  callbackUrl: string | null
  items: readonly SubmittedItem[]
  /** Upper bounds of the shards' ranges, ascending; the first begins at 0. A draft has none yet. */
  shardEnds: readonly number[]
  /** Of each item, in order; empty: an item is one effect. */
  steps: readonly string[]
  /** Who asks, for the audit; `requestedBy` is their name. */
  author?: AuditAuthor
}

/** What the database added: its clock, and its own spelling of the caller's times. */
export interface Stored {
  createdAt: string
  runAfter: string | null
  deadlineAt: string | null
}

/**
 * Stores any number of submissions in one statement and one commit: what arrives while a commit is in flight shares the
 * next one. A submission whose idempotency key is taken is left out whole. Answers with what was stored, by id.
 */
export const insertSubmissions = async (
  { sql }: TransactionConnection,
  submissions: readonly Submission[],
): Promise<Map<string, Stored>> => {
  const operation = (pick: (submission: Submission) => string | null): string => texts(submissions.map(pick))
  const items = submissions.flatMap((submission) =>
    submission.items.map((item, ord) => ({ ...item, id: submission.id, ord })),
  )
  const shards = submissions.flatMap((submission) =>
    submission.shardEnds.map((to, shard) => ({
      id: submission.id,
      shard,
      from: submission.shardEnds[shard - 1] ?? 0,
      to,
      steps: texts(submission.steps),
    })),
  )
  const rows = await sql<Stored & { id: string }>`
    with u as (
      select * from unnest(
        ${ints(submissions.map((submission) => submission.tenantId))}::int[], ${operation((s) => s.id)}::uuid[],
        ${operation((s) => s.type)}::text[], ${ints(submissions.map((s) => s.typeVersion))}::int[],
        ${operation((s) => s.codeVersion)}::text[], ${operation((s) => s.status)}::text[],
        ${ints(submissions.map((s) => s.items.length))}::bigint[], ${operation((s) => s.requestedBy)}::text[],
        ${operation((s) => s.reason)}::text[], ${operation((s) => JSON.stringify(s.labels))}::text[],
        ${ints(submissions.map((s) => s.priority))}::int[], ${operation((s) => s.runAfter)}::timestamptz[],
        ${operation((s) => s.deadlineAt)}::timestamptz[], ${operation((s) => s.risk)}::text[],
        ${operation((s) => JSON.stringify(s.stopIf))}::text[], ${operation((s) => s.approvalRequired)}::text[],
        ${operation((s) => s.idempotencyKey)}::text[], ${operation((s) => s.requestHash)}::text[],
        ${operation((s) => s.traceparent)}::text[],
        ${sparseTexts(submissions.map((s) => s.callbackUrl))}::text[],
        ${sparseTexts(submissions.map((s) => s.author?.auth))}::text[],
        ${sparseTexts(submissions.map((s) => s.author?.scope))}::text[],
        ${sparseTexts(submissions.map((s) => s.author?.requestId))}::text[],
        ${sparseTexts(submissions.map((s) => s.author?.traceId))}::text[])
        as u (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, reason, labels, priority,
          run_after, deadline_at, risk, stop_if, approval_required, idempotency_key, request_hash, traceparent,
          callback_url, auth, scope, request_id, trace_id)),
    o as (
      insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, reason,
        labels, priority, run_after, deadline_at, risk, stop_if, approval_required, root_id, idempotency_key, request_hash,
        traceparent, callback_url)
      select tenant_id, id, type, type_version, code_version, status, items_total, requested_by, reason, labels::jsonb,
        priority, run_after, deadline_at, risk, stop_if::jsonb, approval_required, id, idempotency_key, request_hash,
        traceparent, callback_url
      from u order by tenant_id, idempotency_key
      on conflict (tenant_id, idempotency_key) where idempotency_key is not null do nothing
      returning tenant_id, id, type, type_version, status, requested_by, reason, priority, run_after, deadline_at, created_at),
    item as (
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select o.tenant_id, o.id, i.ord, i.item_key, i.effect_key, i.input::jsonb, i.input_hash
      from unnest(${texts(items.map((item) => item.id))}::uuid[], ${ints(items.map((item) => item.ord))}::int[],
        ${texts(items.map((item) => item.key))}::text[], ${texts(items.map((item) => item.effectKey))}::text[],
        ${texts(items.map((item) => item.input))}::text[], ${texts(items.map((item) => item.inputHash))}::text[])
        as i (id, ord, item_key, effect_key, input, input_hash) join o using (id)),
    shard as (
      insert into operation_shards (tenant_id, operation_id, shard, type, type_version, priority, from_ord, to_ord, cursor,
        run_at, state, steps)
      select o.tenant_id, o.id, s.shard, o.type, o.type_version, o.priority, s.from_ord, s.to_ord, s.from_ord,
        coalesce(o.run_after, now()), case o.status when 'pending' then 'ready' else 'done' end,
        s.steps::text[]
      from unnest(${texts(shards.map((shard) => shard.id))}::uuid[], ${ints(shards.map((shard) => shard.shard))}::int[],
        ${ints(shards.map((shard) => shard.from))}::int[], ${ints(shards.map((shard) => shard.to))}::int[],
        ${texts(shards.map((shard) => shard.steps))}::text[])
        as s (id, shard, from_ord, to_ord, steps) join o using (id)),
    event as (
      insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
      select tenant_id, id, 1, 'accepted', status, requested_by, reason from o),
    audit as (
      -- what audit_row would make of it, without a call for each; what it is about stands with the operation
      insert into audit_entries (tenant_id, actor, auth, scope, action, subject_kind, subject_id, reason, request_id, trace_id)
      select o.tenant_id, o.requested_by, u.auth, u.scope, 'operation.submit', 'operation',
        'op_' || replace(o.id::text, '-', ''), o.reason, u.request_id, u.trace_id
      from o join u on u.id = o.id where u.auth is not null)
    select id, created_at as "createdAt", run_after as "runAfter", deadline_at as "deadlineAt" from o`
  return new Map(rows.map((row) => [row.id, row]))
}

/** The operation that owns an idempotency key. */
export const readByIdempotencyKey = async (
  { sql }: Connection,
  tenantId: number,
  idempotencyKey: string,
): Promise<{ id: string; requestHash: string } | null> => {
  const [row] = await sql<{ id: string; request_hash: string }>`
    select id, request_hash from operations where tenant_id = ${tenantId} and idempotency_key = ${idempotencyKey}`
  return row ? { id: row.id, requestHash: row.request_hash } : null
}
