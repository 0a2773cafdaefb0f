/**
 * An operation that is made of another one's items, as its preflight named them: a replay, or a compensation. One transaction:
 *
 *   lock the preflight        of two requests with one preflight the second finds what the first one made
 *   lock operation and shards so that no outcome of it changes between the check and the copy (L1)
 *   check                     the version is the judged one, and no replay or compensation of it is open
 *   copy                      set-wise; it must find as many items as were judged
 *   shards, events, the audit, and the preflight is used
 *
 * A crash before the commit leaves nothing, and the preflight as it was.
 */
import type { Audited } from '../domain/audit.ts'
import { ints, texts } from './array-literal.ts'
import { recordAudit } from './audit.ts'
import type { Sql, TransactionConnection } from './connection.ts'
import type { Database } from './database.ts'
import { lockOperation } from './stops.ts'

export interface DerivedOperation extends Audited {
  tenantId: number
  id: string
  preflightId: string
  /** The operation that it is made of, and its version (its shards' included) when the facts were judged. */
  of: string
  seenVersion: number
  targets: number
  typeVersion: number
  codeVersion: string
  requestedBy: string
  reason: string
  approvalRequired: string | null
  /** Upper bounds of the shards' ranges, ascending; the first begins at 0. */
  shardEnds: readonly number[]
  /** Of its items, as the type is installed now. */
  steps: readonly string[]
}

/** How the one kind differs from the other. */
export interface Derivation {
  kind: 'replay' | 'compensation'
  /** Of the source's items, in which the statements go through them. */
  order: 'ascending' | 'descending'
  /** Copies the targets among the source's items [from, to), the first one to the place `at`; answers with their number. */
  copy(sql: Sql, range: { from: number; to: number; at: number }): Promise<number>
}

/** Source items that one statement copies: far from the limits of a statement, also where their inputs are large. */
export const ORDS_PER_STATEMENT = 50_000

export type Insertion = { kind: 'made' } | { kind: 'used'; by: string } | { kind: 'outdated' }

/** Ends the transaction without a trace. */
class Outdated extends Error {}

export const insertDerived = async (
  database: Database,
  made: DerivedOperation,
  derivation: Derivation,
  ordsPerStatement: number,
): Promise<Insertion> => {
  try {
    return await database.transaction((connection) => insertLocked(connection, made, derivation, ordsPerStatement))
  } catch (error) {
    if (error instanceof Outdated) return { kind: 'outdated' }
    throw error
  }
}

const EVENTS = { replay: 'replayed', compensation: 'compensation_requested' } as const

const insertLocked = async (
  { sql }: TransactionConnection,
  made: DerivedOperation,
  derivation: Derivation,
  ordsPerStatement: number,
): Promise<Insertion> => {
  const { tenantId } = made
  const [preflight] = await sql<{ used_by: string | null; expired: boolean }>`
    select used_by, expires_at <= now() as expired from replay_preflights
    where tenant_id = ${tenantId} and id = ${made.preflightId}::uuid for no key update`
  if (preflight?.used_by) return { kind: 'used', by: preflight.used_by }
  if (!preflight || preflight.expired) return { kind: 'outdated' }
  await lockOperation(sql, { tenantId, operationId: made.of })
  const [now] = await sql<{ version: number; live: boolean; items: number }>`
    select (o.version + (select coalesce(sum(s.version), 0) from operation_shards s
        where s.tenant_id = o.tenant_id and s.operation_id = o.id))::float8 as version, o.items_total::int as items,
      exists (select from operations r
        where r.tenant_id = o.tenant_id and r.replay_of = o.id and r.completed_at is null)
      or exists (select from operations c
        where c.tenant_id = o.tenant_id and c.compensates = o.id and c.completed_at is null) as live
    from operations o where o.tenant_id = ${tenantId} and o.id = ${made.of}::uuid`
  if (now?.version !== made.seenVersion || now.live) return { kind: 'outdated' }
  const status = made.approvalRequired === null ? 'pending' : 'awaiting_approval'
  const isReplay = derivation.kind === 'replay'
  await sql`
    insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, reason,
      labels, priority, risk, stop_if, approval_required, replay_of, compensates, root_id, preflight_id, traceparent,
      callback_url)
    select tenant_id, ${made.id}::uuid, type, ${made.typeVersion}, ${made.codeVersion}, ${status}, ${made.targets},
      ${made.requestedBy}, ${made.reason}, labels, priority, risk, stop_if, ${made.approvalRequired},
      case when ${isReplay} then id end, case when ${isReplay} then compensates else id end, root_id,
      ${made.preflightId}::uuid, traceparent, callback_url
    from operations where tenant_id = ${tenantId} and id = ${made.of}::uuid`
  let copied = 0
  for (const range of ranges(now.items, ordsPerStatement, derivation.order)) {
    copied += await derivation.copy(sql, { ...range, at: copied })
  }
  if (copied !== made.targets) throw new Outdated()
  await sql`
    insert into operation_shards (tenant_id, operation_id, shard, type, type_version, priority, from_ord, to_ord, cursor,
      state, compensating, steps)
    select o.tenant_id, o.id, s.shard - 1, o.type, o.type_version, o.priority,
      coalesce(lag(s.to_ord) over (order by s.shard), 0), s.to_ord, coalesce(lag(s.to_ord) over (order by s.shard), 0),
      case o.status when 'pending' then 'ready' else 'done' end, o.compensates is not null,
      ${texts(made.steps)}::text[]
    from operations o, unnest(${ints(made.shardEnds)}::int[]) with ordinality as s (to_ord, shard)
    where o.tenant_id = ${tenantId} and o.id = ${made.id}::uuid`
  await sql`
    insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
    values (${tenantId}, ${made.id}::uuid, 1, 'accepted', ${status}, ${made.requestedBy}, ${made.reason})`
  await sql`
    update replay_preflights set used_by = ${made.id}::uuid
    where tenant_id = ${tenantId} and id = ${made.preflightId}::uuid`
  await sql`
    with o as (
      update operations set version = version + 1
      where tenant_id = ${tenantId} and id = ${made.of}::uuid returning tenant_id, id, version, status)
    insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
    select tenant_id, id, version, ${EVENTS[derivation.kind]}, status, ${made.requestedBy}, ${made.reason} from o`
  await recordAudit(sql, tenantId, made.audit)
  return { kind: 'made' }
}

const ranges = (items: number, size: number, order: Derivation['order']): { from: number; to: number }[] => {
  const ascending = Array.from({ length: Math.ceil(items / size) }, (_, index) => ({
    from: index * size,
    to: Math.min((index + 1) * size, items),
  }))
  return order === 'ascending' ? ascending : ascending.reverse()
}
