/**
 * Operations that wait for others (`after`): how one is stored, and how it is let go.
 *
 * While it waits (`after_open`) its shards are `done`, as those of one that waits for an approval are, so nothing of it is
 * claimable; whoever else makes shards ready (start of a draft, approval, resume) reads `after_open` from the operation's row
 * under its lock and leaves them done. It ends with a release, or with a cancel, which closes `after_open` itself.
 *
 *   1. mark    the befores get `awaited`           commit
 *   2. insert  operation, items, dependencies      commit
 *   3. look    lock the new one, read the befores, decide
 *   settle of a before: write the final status, returning `awaited` of the written row; if set, look at its dependents
 *
 * No wake-up is lost. The mark is a column of the row that the settle writes, so the two have an order. Settle first: it
 * was committed before step 3 reads, which sees it. Mark first: the settle returns `awaited` and then, in a later statement,
 * reads the dependents: either step 2 has committed and the new one is found, or step 3 comes later and sees the final status.
 *
 * A crash after 1 leaves a mark that costs one read; after 2, or between a settle and its look, the sweep looks (it finds
 * waiting operations with a before that is final and not noted in `ended_as`). Looking twice is harmless: the lock orders the
 * two, the second finds `after_open` closed or nothing new. The befores are read after the lock is held (L4), and without a
 * lock of theirs (L1): a final status is never left, and one that becomes final a moment later has its own look.
 * The mark locks befores in the order of their ids and nothing else, and no path locks shards before an operation (L1, L2).
 */
import { type AfterDecision, type AfterWhen, afterDecision, type Before, type EndedBefore } from '../domain/after.ts'
import { formatId } from '../domain/ids.ts'
import { texts } from './array-literal.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'
import { lockOperation } from './stops.ts'
import { insertSubmissions, type Stored, type Submission } from './submissions.ts'

export interface DependentKey {
  tenantId: number
  operationId: string
}

/**
 * Marks operations as awaited, all of them or none. Answers with those that exist in the tenant: when some are missing,
 * nothing was changed.
 */
export const markAwaited = async (
  { sql }: Connection,
  tenantId: number,
  ids: readonly string[],
): Promise<Set<string>> => {
  const rows = await sql<{ id: string }>`
    with before as materialized (
      select id, awaited from operations where tenant_id = ${tenantId} and id = any(${texts(ids)}::uuid[])
      order by id for no key update),
    mark as (
      update operations o set awaited = true
      from before b
      where o.tenant_id = ${tenantId} and o.id = b.id and not b.awaited and (select count(*) from before) = ${ids.length})
    select id from before`
  return new Set(rows.map((row) => row.id))
}

export interface DependentSubmission extends Submission {
  after: readonly string[]
  afterWhen: AfterWhen
}

/** Stores an operation that waits. Null: its idempotency key is taken. */
export const insertDependent = (database: Database, submission: DependentSubmission): Promise<Stored | null> =>
  database.transaction(async (connection) => {
    const { sql } = connection
    const { tenantId, id } = submission
    const stored = (await insertSubmissions(connection, [submission])).get(id)
    if (!stored) return null
    await sql`
      update operations set after = ${JSON.stringify(submission.after)}::text::jsonb, after_when = ${submission.afterWhen},
        after_open = true
      where tenant_id = ${tenantId} and id = ${id}::uuid`
    await sql`update operation_shards set state = 'done' where tenant_id = ${tenantId} and operation_id = ${id}::uuid`
    await sql`
      insert into operation_dependencies (tenant_id, operation_id, after_id)
      select ${tenantId}, ${id}::uuid, unnest(${texts(submission.after)}::uuid[])`
    return stored
  })

/** Operations that wait for this one; at most `limit`. */
export const readDependents = async (
  { sql }: Connection,
  tenantId: number,
  beforeId: string,
  limit: number,
): Promise<DependentKey[]> => {
  const rows = await sql<{ id: string }>`
    select o.id from operation_dependencies d join operations o on o.tenant_id = d.tenant_id and o.id = d.operation_id
    where d.tenant_id = ${tenantId} and d.after_id = ${beforeId}::uuid and o.after_open
    order by o.id limit ${limit}`
  return rows.map(({ id }) => ({ tenantId, operationId: id }))
}

/** Operations that wait although one of those before has ended and they have not taken note of it, over all tenants. */
export const readOverdueDependents = async ({ sql }: Connection, limit: number): Promise<DependentKey[]> => {
  const rows = await sql<{ tenant_id: number; id: string }>`
    select o.tenant_id, o.id from operations o
    where o.after_open and exists (
      select from operation_dependencies d join operations b on b.tenant_id = d.tenant_id and b.id = d.after_id
      where d.tenant_id = o.tenant_id and d.operation_id = o.id and d.ended_as is null and b.completed_at is not null
      offset 0) -- per waiting operation; as a join it would read all that has ended
    order by o.tenant_id, o.id limit ${limit}`
  return rows.map((row) => ({ tenantId: row.tenant_id, operationId: row.id }))
}

interface Waiting {
  afterWhen: AfterWhen
  befores: (Before & { noted: boolean })[]
}

/**
 * Looks at an operation that waits: takes note of what has ended, and lets it go when nothing is left to wait for. A decision
 * to cancel is only told: whoever asked makes it a cancel like any other. Null: it does not wait (any more), or nothing is new.
 */
export const lookAtDependent = (database: Database, key: DependentKey): Promise<AfterDecision | null> =>
  database.transaction(async ({ sql }) => {
    await lockOperation(sql, key)
    const waiting = await readWaiting(sql, key)
    if (!waiting) return null
    const decision = afterDecision(waiting.befores, waiting.afterWhen)
    if (decision.kind === 'cancel') return decision
    const isNoted = (ended: EndedBefore): boolean => waiting.befores.some(({ id, noted }) => id === ended.id && noted)
    const news = decision.ended.filter((ended) => !isNoted(ended))
    if (news.length === 0) return null
    await noteEnded(sql, key, news, decision.kind === 'release')
    return decision
  })

const readWaiting = async (sql: Sql, { tenantId, operationId }: DependentKey): Promise<Waiting | null> => {
  const [row] = await sql<Waiting>`
    select o.after_when as "afterWhen", (
      select jsonb_agg(jsonb_build_object('id', b.id, 'status', b.status, 'noted', d.ended_as is not null) order by b.id)
      from operation_dependencies d join operations b on b.tenant_id = d.tenant_id and b.id = d.after_id
      where d.tenant_id = o.tenant_id and d.operation_id = o.id) as befores
    from operations o where o.tenant_id = ${tenantId} and o.id = ${operationId}::uuid and o.after_open`
  return row ?? null
}

/** One change of the operation, whatever it is: `waiting_for` is shown, so its version moves with it. */
const noteEnded = async (
  sql: Sql,
  { tenantId, operationId }: DependentKey,
  news: readonly EndedBefore[],
  release: boolean,
): Promise<void> => {
  const told = news.map(({ id, status }) => `${formatId('op', id)} is ${status}`).join(', ')
  await sql`
    with o as (
      update operations set after_open = not ${release}, version = version + 1
      where tenant_id = ${tenantId} and id = ${operationId}::uuid
      returning tenant_id, id, version, status, run_after),
    noted as (
      update operation_dependencies d set ended_as = n.status
      from unnest(${texts(news.map(({ id }) => id))}::uuid[], ${texts(news.map(({ status }) => status))}::text[])
        as n (id, status)
      where d.tenant_id = ${tenantId} and d.operation_id = ${operationId}::uuid and d.after_id = n.id),
    going as (
      update operation_shards s set state = 'ready', version = s.version + 1, run_at = greatest(now(), o.run_after)
      from o where s.tenant_id = o.tenant_id and s.operation_id = o.id and ${release} and o.status = 'pending')
    insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
    select tenant_id, id, version, ${release ? 'released' : 'predecessor_ended'}, status, 'system:after', ${told} from o`
}
