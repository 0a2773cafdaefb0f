/**
 * The inbox of signed events from providers: received once, judged until there is an outcome.
 *
 *   (none) ─insert─▶ received ─outcome─▶ processed
 *                        └─▶ deferred ─outcome─▶ processed      (ignored and unknown_effect are processed from the start)
 *
 * An event is evidence for one send: the one that was current when it was received. That send is named here by the insert,
 * and never anew, so an event that waits cannot become evidence for a retry that followed.
 *
 * Nobody owns an event. Any number may judge it at once (two deliveries, the maintenance loop), without a lock of their own:
 *  - Converge is fenced by (effect key, send, operation), and moves an effect once, under the lock of its shard.
 *  - What an event did is a ledger entry that names it (`evidence_ref`), written in the same commit. Each look at an event
 *    reads that trace first, and the outcome follows from it, not from who moved what: all who look say the same.
 *  - The first outcome is kept; whoever comes later answers with it.
 *
 * Why a crash at each line is safe:
 *  before the insert commits     the provider got no answer, and sends the event again.
 *  inserted, not judged          a repeat of the event judges it, or else the maintenance loop.
 *  converged, outcome missing    the same; the trace says what it did. Nothing is done twice.
 *  deferred                      the maintenance loop looks when the call has ended, or the absence cannot change any more.
 *  outcome committed             a repeat is answered with it.
 */
import type { AuditEntry } from '../domain/audit.ts'
import type { CallbackOutcome } from '../domain/callback.ts'
import type { EffectState } from '../domain/effect.ts'
import type { CallbackStatement } from '../domain/operation-type.ts'
import { texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import type { ShardKey } from './run/lease.ts'

/** An effect as it stood when an event about it was received. */
export interface CallbackTarget extends ShardKey {
  ord: number
  itemKey: string
  send: number
}

export interface StoredCallback {
  type: string
  eventId: string
  bodyHash: string
  /** Null: no rule read anything. */
  statement: CallbackStatement | null
  /** Null: no effect has the key. */
  target: CallbackTarget | null
  outcome: CallbackOutcome | null
  caseId: string | null
  /** Whether the outcome stands. */
  processed: boolean
}

interface CallbackRow {
  type: string
  event_id: string
  body_hash: string
  state: 'applied' | 'absent' | null
  effect_key: string | null
  effect_ref: string | null
  tenant_id: number | null
  operation_id: string
  shard: number
  ord: number
  item_key: string
  send: number
  outcome: CallbackOutcome | null
  case_id: string | null
  processed: boolean
}

const parse = (row: CallbackRow): StoredCallback => ({
  type: row.type,
  eventId: row.event_id,
  bodyHash: row.body_hash,
  statement:
    row.state === null || row.effect_key === null
      ? null
      : {
          state: row.state,
          effectKey: row.effect_key,
          ...(row.effect_ref === null ? {} : { effectRef: row.effect_ref }),
        },
  target:
    row.tenant_id === null
      ? null
      : {
          tenantId: row.tenant_id,
          operationId: row.operation_id,
          shard: row.shard,
          ord: row.ord,
          itemKey: row.item_key,
          send: row.send,
        },
  outcome: row.outcome,
  caseId: row.case_id,
  processed: row.processed,
})

export const readCallback = async (
  { sql }: Connection,
  event: { type: string; eventId: string },
): Promise<StoredCallback | null> => {
  const [row] = await sql<CallbackRow>`
    select type, event_id, body_hash, state, effect_key, effect_ref, tenant_id, operation_id, shard, ord, item_key, send,
      outcome, case_id, processed_at is not null as processed
    from callback_inbox where type = ${event.type} and event_id = ${event.eventId}`
  return row ? parse(row) : null
}

/** Effects of a type with this key: at most one a tenant, and two are enough to know that a tenant must be named. */
export const findCallbackTargets = (
  { sql }: Connection,
  wanted: {
    type: string
    effectKey: string
    tenantId: number | null
  },
): Promise<CallbackTarget[]> =>
  sql<CallbackTarget>`
    select e.tenant_id as "tenantId", e.operation_id as "operationId", e.shard, e.ord, e.item_key as "itemKey", e.send
    from tenants t
      -- a tenant at a time, as the registry's key begins with it
      cross join lateral (
        select * from effects e where e.tenant_id = t.id and e.effect_key = ${wanted.effectKey} offset 0) e
      join operations o on o.tenant_id = e.tenant_id and o.id = e.operation_id
    where o.type = ${wanted.type} and t.id = coalesce(${wanted.tenantId}::int, t.id)
    order by t.id limit 2`

/** Keeps an event, durably. Without a target there is nothing to judge: its outcome stands at once. False: it is there. */
export const insertCallback = async (
  { sql }: Connection,
  event: Pick<StoredCallback, 'type' | 'eventId' | 'bodyHash' | 'statement' | 'target'>,
  audit: { tenantId: number; entry: AuditEntry } | null = null,
): Promise<boolean> => {
  const { statement, target } = event
  const outcome = target !== null ? null : statement === null ? 'ignored' : 'unknown_effect'
  const rows = await sql`
    with kept as (
      insert into callback_inbox (type, event_id, body_hash, state, effect_key, effect_ref, tenant_id, operation_id, shard, ord,
        item_key, send, outcome, processed_at)
      values (${event.type}, ${event.eventId}, ${event.bodyHash}, ${statement?.state ?? null}, ${statement?.effectKey ?? null},
        ${statement?.effectRef ?? null}, ${target?.tenantId ?? null}, ${target?.operationId ?? null}::uuid,
        ${target?.shard ?? null}, ${target?.ord ?? null}, ${target?.itemKey ?? null}, ${target?.send ?? null}, ${outcome},
        case when ${outcome}::text is not null then clock_timestamp() end)
      on conflict (type, event_id) do nothing
      returning 1),
    audit as (
      insert into audit_entries
      select a.* from kept, audit_row(${audit?.tenantId ?? 0}::int, ${auditJson(audit?.entry)}::text::jsonb) a)
    select 1 from kept`
  return rows.length > 0
}

/** What an event is judged by. */
export interface CallbackStanding {
  state: EffectState
  send: number
  operationId: string
  attempt: number
  /** Of the operation that the event speaks of. */
  cancelled: boolean
  /** Since the last instant at which the current send could still begin. */
  sinceSendByMs: number
  /** Why the ledger has an entry of this event; null: it has one without a reason; undefined: none. */
  trace: string | null | undefined
  /** The open case of the item. */
  caseId: string | null
}

/** Null: there is no such effect any more. */
export const readCallbackStanding = async (
  { sql }: Connection,
  target: CallbackTarget,
  effectKey: string,
  evidenceRef: string,
): Promise<CallbackStanding | null> => {
  const [row] = await sql<Omit<CallbackStanding, 'trace'> & { traced: boolean; reason_code: string | null }>`
    select e.state, e.send, e.operation_id as "operationId", e.attempt,
      coalesce((select o.cancel_requested_at is not null from operations o
        where o.tenant_id = ${target.tenantId} and o.id = ${target.operationId}::uuid), true) as cancelled,
      (extract(epoch from clock_timestamp() - e.send_by) * 1000)::float8 as "sinceSendByMs",
      l.seq is not null as traced, l.reason_code,
      (select c.id from reconciliation_cases c where c.tenant_id = ${target.tenantId}
        and c.operation_id = ${target.operationId}::uuid and c.ord = ${target.ord} and c.closed_at is null) as "caseId"
    from effects e
      left join lateral (
        select seq, reason_code from ledger_entries l
        where l.tenant_id = ${target.tenantId} and l.operation_id = ${target.operationId}::uuid and l.ord = ${target.ord}
          and l.source = 'callback' and l.evidence_ref = ${evidenceRef}
        order by seq desc limit 1) l on true
    where e.tenant_id = ${target.tenantId} and e.effect_key = ${effectKey}`
  if (!row) return null
  const { traced, reason_code, ...standing } = row
  return { ...standing, trace: traced ? reason_code : undefined }
}

export const REPORTED_ABSENT = 'REPORTED_ABSENT'

/**
 * Writes down that an uncertain effect is said to be absent: an observation in the ledger, and a note on the case, which
 * stays open. If the provider can be asked, it is asked now. Nothing happens when the effect is not uncertain any more.
 */
export const noteAbsence = (
  database: Database,
  target: CallbackTarget,
  said: { effectKey: string; effectRef: string | null; evidenceRef: string; actor: string; codeVersion: string },
): Promise<void> =>
  database.transaction(async ({ sql }) => {
    await sql`
      select 1 from operation_shards
      where tenant_id = ${target.tenantId} and operation_id = ${target.operationId}::uuid and shard = ${target.shard}
      for no key update`
    const written = await sql`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, reason_code, message,
        effect_key, send, input_hash, effect_ref, evidence_ref, source, actor, code_version)
      select e.tenant_id, e.operation_id, e.ord, e.item_key, e.step, e.attempt, null, ${REPORTED_ABSENT},
        'reported: absent', e.effect_key, e.send, e.input_hash, ${said.effectRef}, ${said.evidenceRef}, 'callback', ${said.actor},
        ${said.codeVersion}
      from effects e
      where e.tenant_id = ${target.tenantId} and e.effect_key = ${said.effectKey} and e.state = 'uncertain'
        and e.send = ${target.send} and e.operation_id = ${target.operationId}::uuid and e.ord = ${target.ord}
        and not exists (
          select from ledger_entries l
          where l.tenant_id = e.tenant_id and l.operation_id = e.operation_id and l.ord = e.ord and l.source = 'callback'
            and l.evidence_ref = ${said.evidenceRef})
      returning 1`
    if (written.length === 0) return
    await sql`
      update reconciliation_cases set
        note = concat_ws('; ', note, ${`${said.evidenceRef} reported: absent`}::text),
        next_lookup_at = case when next_lookup_at is not null then now() end
      where tenant_id = ${target.tenantId} and operation_id = ${target.operationId}::uuid and ord = ${target.ord}
        and closed_at is null`
    await sql`
      update operation_shards set version = version + 1
      where tenant_id = ${target.tenantId} and operation_id = ${target.operationId}::uuid and shard = ${target.shard}`
  })

/** Keeps the outcome, unless there is one that stands. `dueInMs`: when a deferred event is looked at again. */
export const keepOutcome = async (
  { sql }: Connection,
  event: Pick<StoredCallback, 'type' | 'eventId'>,
  { outcome, caseId, dueInMs }: { outcome: CallbackOutcome; caseId: string | null; dueInMs: number },
): Promise<void> => {
  await sql`
    update callback_inbox set
      outcome = ${outcome}, case_id = ${caseId}::uuid, due_at = now() + ${dueInMs}::float8 * interval '1 ms',
      processed_at = case when ${outcome} <> 'deferred' then clock_timestamp() end
    where type = ${event.type} and event_id = ${event.eventId} and processed_at is null`
}

/**
 * Takes events that wait for a judgement: whose receiver died, and deferred ones whose time has come. Each is pushed out by
 * `holdMs`, so that two loops take different ones, and one that cannot be judged stands in nobody's way.
 */
export const takePendingCallbacks = async (
  { sql }: Connection,
  take: { types: readonly string[]; limit: number; holdMs: number },
): Promise<StoredCallback[]> => {
  const rows = await sql<CallbackRow>`
    with due as materialized (
      select i.type, i.event_id from callback_inbox i
        left join effects e on e.tenant_id = i.tenant_id and e.effect_key = i.effect_key
      where i.processed_at is null and i.due_at <= now() and i.type = any(${texts(take.types)}::text[])
        -- while the call is in flight there is nothing to say
        and (i.outcome is null or e.state is distinct from 'intent' or e.send <> i.send or e.operation_id <> i.operation_id)
      order by i.due_at limit ${take.limit}
      for no key update of i skip locked)
    update callback_inbox i set due_at = now() + ${take.holdMs} * interval '1 ms'
    from due where i.type = due.type and i.event_id = due.event_id
    returning i.type, i.event_id, i.body_hash, i.state, i.effect_key, i.effect_ref, i.tenant_id, i.operation_id, i.shard,
      i.ord, i.item_key, i.send, i.outcome, i.case_id, i.processed_at is not null as processed`
  return rows.map(parse)
}
