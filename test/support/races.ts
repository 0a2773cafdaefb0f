/**
 * What deterministic races are made of: an operation in the database, a lock held by a session of its own, and the certainty
 * that a rival waits for it. No test here sleeps: it asks pg_stat_activity.
 */
import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { uuidv7 } from 'uuidv7'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report } from '../../src/services/evidence-reports.ts'
import type { Database } from '../../src/storage/database.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimReadyShards, type RunnableType } from '../../src/storage/run/claim-shards.ts'
import type { Converged } from '../../src/storage/run/converge.ts'
import type { Evidence, Report } from '../../src/storage/run/evidence.ts'
import type { ClaimedShard, Lease, ShardKey } from '../../src/storage/run/lease.ts'
import { insertSubmissions, type Submission } from '../../src/storage/submissions.ts'
import { until } from './processes.ts'

export const TENANT = 1
export const GRANT: RunnableType = {
  name: 'grant',
  version: 1,
  leaseMs: 30_000,
  windowMax: 32,
  compensates: false,
  codeVersion: 'c1',
}

/** Wake-ups that go nowhere: losing every one of them changes nothing but latency. */
export const NO_WAKE_UPS = { send: () => {}, on: () => () => {}, close: async () => {} }

export interface StoredItem {
  key: string
  effectKey: string
  /** JSON text; `{}` when left out. */
  input?: string
}

export const items = (count: number, effectKey: (ord: number) => string = () => randomUUID()): StoredItem[] =>
  Array.from({ length: count }, (_, ord) => ({ key: `i${ord}`, effectKey: effectKey(ord) }))

interface StoredOperation {
  items: readonly StoredItem[]
  type?: string
  shards?: number
  steps?: readonly string[]
  callbackUrl?: string
  status?: Submission['status']
}

export const submissionOf = (operation: StoredOperation): Submission => {
  const { shards = 1, type = GRANT.name, status = 'pending', steps = [] } = operation
  return {
    tenantId: TENANT,
    id: uuidv7(),
    type,
    typeVersion: 1,
    codeVersion: 'c1',
    status,
    requestedBy: 'tester',
    reason: null,
    labels: {},
    priority: 0,
    runAfter: null,
    deadlineAt: null,
    risk: 'low',
    stopIf: [],
    approvalRequired: status === 'awaiting_approval' ? 'always' : null,
    idempotencyKey: null,
    requestHash: 'h',
    traceparent: null,
    callbackUrl: operation.callbackUrl ?? null,
    items: operation.items.map(({ key, effectKey, input = '{}' }) => ({ key, effectKey, input, inputHash: 'h' })),
    shardEnds:
      status === 'draft'
        ? []
        : Array.from({ length: shards }, (_, shard) => Math.floor((operation.items.length * (shard + 1)) / shards)),
    steps,
  }
}

/** Stores an operation as a submission does. */
export const storeOperation = async (database: Database, operation: StoredOperation): Promise<string> => {
  const submission = submissionOf(operation)
  await database.query((connection) => insertSubmissions(connection, [submission]))
  return submission.id
}

/** Empties every table that a run writes. */
export const wipe = (database: Database): Promise<void> =>
  database.transaction(async ({ script }) => {
    await script(`set local opledger.retention = 'on';
      truncate operations, operation_items, operation_shards, operation_events, effects, item_retries, ledger_entries,
        reconciliation_cases, dead_letters, callback_inbox, webhook_deliveries, webhook_attempts, operation_dependencies,
        bulk_actions, bulk_action_targets, replay_preflights, artifacts, artifact_workspaces`)
  })

export const claimOne = async (database: Database, type = GRANT, workerId = randomUUID()): Promise<ClaimedShard> => {
  const { shards } = await database.query((connection) =>
    claimReadyShards(connection, { workerId, types: [type], limit: 1, perTenant: 1, afterTenant: 0 }),
  )
  const [shard] = shards
  if (!shard) throw new Error('no shard is ready')
  return shard
}

/** Claims the window [from, to) as a run does. Null: the fence did not hold. */
export const claimWindow = (database: Database, lease: Lease, from: number, to: number): Promise<Set<number> | null> =>
  database.query((connection) => claimIntents(connection, lease, { from, to, sendByMs: 10_000 }))

/** Brings one report home. */
export const tell = (
  database: Database,
  lease: ShardKey & { epoch?: number; workerId?: string },
  effect: { ord: number; effectKey: string; send?: number },
  said: Pick<Report, 'effect' | 'item'> & Partial<Report>,
  source: Evidence['source'] = 'worker',
): Promise<Converged> =>
  convergeEvidence({ database, wakeUps: NO_WAKE_UPS }, lease, {
    source,
    epoch: lease.epoch ?? 0,
    workerId: lease.workerId ?? null,
    actor: source === 'operator' ? 'tester' : null,
    codeVersion: 'c1',
    lookupAfterMs: null,
    reports: [report({ send: 1, ...effect }, said)],
  })

/** Lets the lease of a shard run out. */
export const expireLease = async (database: Database, shard: ShardKey): Promise<void> => {
  await database.query(
    ({ sql }) => sql`
      update operation_shards set lease_expires_at = now() - interval '1 second'
      where operation_id = ${shard.operationId}::uuid and shard = ${shard.shard} and state = 'leased'`,
  )
}

/** A session of its own that holds a row. */
export interface Hold {
  /** Runs a statement in the holding transaction. */
  readonly sql: postgres.Sql
  commit(): Promise<void>
}

const hold = async (url: string, lock: (sql: postgres.Sql) => Promise<unknown>): Promise<Hold> => {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  await sql.unsafe('begin')
  await lock(sql)
  return {
    sql,
    async commit() {
      await sql.unsafe('commit')
      await sql.end()
    },
  }
}

export const holdShard = (url: string, shard: ShardKey): Promise<Hold> =>
  hold(
    url,
    (
      sql,
    ) => sql`select 1 from operation_shards where tenant_id = ${shard.tenantId} and operation_id = ${shard.operationId}
      and shard = ${shard.shard} for no key update`,
  )

export const holdOperation = (url: string, operationId: string): Promise<Hold> =>
  hold(url, (sql) => sql`select 1 from operations where id = ${operationId} for no key update`)

export const holdDeadLetter = (url: string, id: string): Promise<Hold> =>
  hold(url, (sql) => sql`select 1 from dead_letters where id = ${id} for no key update`)

export const holdBulkAction = (url: string, id: string): Promise<Hold> =>
  hold(url, (sql) => sql`select 1 from bulk_actions where id = ${id} for no key update`)

/** Until exactly so many sessions of this database wait for a lock. They queue in the order in which they came. */
export const untilWaiting = (database: Database, count: number): Promise<void> =>
  until(`${count} sessions wait for a lock`, async () => {
    const [row] = await database.query(
      ({ sql }) => sql<{ n: number }>`
        select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    return row?.n === count
  })

/** The rivals start one after the other behind the held row, in this order; then the row is released. */
export const raceBehind = async <Rivals extends (() => Promise<unknown>)[]>(
  database: Database,
  held: Hold,
  ...rivals: Rivals
): Promise<{ [Index in keyof Rivals]: Awaited<ReturnType<Rivals[Index]>> }> => {
  const running: Promise<unknown>[] = []
  for (const [index, rival] of rivals.entries()) {
    running.push(rival())
    await untilWaiting(database, index + 1)
  }
  await held.commit()
  return (await Promise.all(running)) as { [Index in keyof Rivals]: Awaited<ReturnType<Rivals[Index]>> }
}

export interface ShardFacts {
  state: string
  cursor: number
  lease_epoch: number
  stop_requested: string | null
  version: number
  in_flight: number
  waiting: number
  applied: number
  skipped: number
  failed: number
  uncertain: number
  intents: number
  retries: number
  entries: number
}

/** Everything that a run may change of a shard, as figures. */
export const readShard = async (database: Database, { operationId, shard }: ShardKey): Promise<ShardFacts> => {
  const [row] = await database.query(
    ({ sql }) => sql<ShardFacts>`
      select state, cursor, lease_epoch::int, stop_requested, version::int, in_flight, waiting, applied::int, skipped::int,
        failed::int, uncertain::int,
        (select count(*)::int from effects e where e.operation_id = s.operation_id and e.shard = s.shard
          and e.state = 'intent') as intents,
        (select count(*)::int from item_retries r where r.operation_id = s.operation_id and r.shard = s.shard) as retries,
        (select count(*)::int from ledger_entries l where l.operation_id = s.operation_id and l.ord >= s.from_ord
          and l.ord < s.to_ord) as entries
      from operation_shards s where operation_id = ${operationId}::uuid and shard = ${shard}`,
  )
  if (!row) throw new Error('there is no such shard')
  return row
}

/** Which webhooks an operation has brought about, in order: the event, and the status that it tells. */
export const webhooksOf = async (database: Database, operationId: string): Promise<string[]> => {
  const rows = await database.query(
    ({ sql }) => sql<{ told: string }>`
      select event || ' ' || status as told from webhook_deliveries where operation_id = ${operationId}::uuid
      order by event_version`,
  )
  return rows.map(({ told }) => told)
}
