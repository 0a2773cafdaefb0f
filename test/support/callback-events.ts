/** What tests of received events work with: one effect, `key`, brought into every state, and events about it. */
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach } from 'vitest'
import type { CallbackStatement, Json, OperationType } from '../../src/domain/operation-type.ts'
import { callbacks } from '../../src/maintenance/callbacks.ts'
import { receiveCallback } from '../../src/services/receive-callback.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import type { CallbackView } from '../../src/services/views.ts'
import { readCallback } from '../../src/storage/callbacks.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { claimRetries } from '../../src/storage/run/claim-retries.ts'
import type { ClaimedShard, ShardKey } from '../../src/storage/run/lease.ts'
import { readDueRetries } from '../../src/storage/run/window.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'
import { plantedType, plantedTypes } from './planted-operation.ts'
import {
  claimOne,
  claimWindow,
  type Hold,
  holdShard,
  items,
  NO_WAKE_UPS,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from './races.ts'

let testDatabase: TestDatabase
/** Set before the first test of a file. */
export let database: Database

/** A database for a test file, empty at the start of each test. */
export const useCallbackDatabase = (): void => {
  beforeAll(async () => {
    testDatabase = await createTestDatabase()
    database = openDatabase({ url: testDatabase.url, size: 6, name: 'callbacks' })
  })
  afterAll(async () => {
    await database.close()
    await testDatabase.drop()
  })
  beforeEach(() => wipe(database))
}

/** A rival holds the shard's row. */
export const hold = (shard: ShardKey): Promise<Hold> => holdShard(testDatabase.url, shard)

/** Its calls take no time, so an absence is stable as soon as the outcome is known. Signatures are another test's subject. */
export const grant = (change: Partial<OperationType> = {}): OperationType =>
  plantedType('grant', {
    executor: {
      kind: 'external',
      callTimeoutMs: 0,
      send: () => Promise.reject(new Error('never sent')),
      lookup: null,
    },
    callback: { verify: () => true, read: (event) => event as CallbackStatement | (null & Json) },
    retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 },
    ...change,
  })
export const contextOf = (type = grant()) => ({ database, wakeUps: NO_WAKE_UPS, types: plantedTypes(type) })

export type Said = CallbackStatement['state']
export const receive = (
  said: Said,
  { id = 'e1', key = 'key', type = grant(), tenantId = null as number | null, ref = null as string | null } = {},
): Promise<CallbackView> =>
  receiveCallback(contextOf(type), {
    type: type.name,
    headers: { 'webhook-id': id },
    body: Buffer.from(JSON.stringify({ effectKey: key, state: said, ...(ref === null ? {} : { effectRef: ref }) })),
    tenantId,
  })

/** One run of the loop that judges what waits, as if everything that waits were due. */
export const maintain = async (type = grant()) => {
  await database.query(({ sql }) => sql`update callback_inbox set due_at = now() where processed_at is null`)
  await callbacks(contextOf(type), pino({ level: 'silent' })).runOnce()
}

export const key = { ord: 0, effectKey: 'key' }
export const applied = { effect: 'applied', item: 'applied', effectRef: 'ref' } as const
export const uncertain = { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' } as const
export const refused = { effect: 'absent', item: 'failed', failureClass: 'conflict' } as const
export const busyAgain = {
  effect: 'absent',
  item: 'failed',
  failureClass: 'transient',
  retry: { afterMs: 0, reason: 'failed' },
} as const

/** An operation with one item, `key`, whose first send is in flight. */
export const inFlight = async (): Promise<ClaimedShard> => {
  await storeOperation(database, { items: items(1, () => 'key') })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 1)
  return lease
}
export const timedOut = async (): Promise<ClaimedShard> => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  return lease
}
export const claimRetry = async (lease: ClaimedShard) => {
  await database.query(({ sql }) => sql`update item_retries set run_at = now()`)
  const ords = await database.query((connection) => readDueRetries(connection, lease, 10))
  return claimRetries(database, lease, ords, { sendByMs: 1_000, resendWithinMs: 3_600_000 })
}
/** The first send was answered "busy", the second is in flight. */
export const inFlightAgain = async (): Promise<ClaimedShard> => {
  const lease = await inFlight()
  await tell(database, lease, key, busyAgain)
  await claimRetry(lease)
  return lease
}

export const effect = async (effectKey = 'key', tenantId = TENANT) => {
  const [row] = await database.query(
    ({ sql }) => sql<{ state: string; send: number; ref: string | null }>`
      select state, send, effect_ref as ref from effects where effect_key = ${effectKey} and tenant_id = ${tenantId}`,
  )
  return row
}
export const cases = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{
      id: string
      cause: string
      resolution: string | null
      source: string | null
      note: string | null
    }>`
      select id, cause, resolution, resolution_source as source, note from reconciliation_cases
      where operation_id = ${operationId}::uuid order by opened_at, id`,
  )
export const entries = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{ state: string | null; source: string; reason_code: string | null; evidence_ref: string | null }>`
      select state, source, reason_code, evidence_ref from ledger_entries where operation_id = ${operationId}::uuid
      order by seq`,
  )
export const inbox = async (eventId = 'e1') => {
  const stored = await database.query((connection) => readCallback(connection, { type: 'grant', eventId }))
  return stored && { outcome: stored.outcome, processed: stored.processed }
}
export const resolve = (id: string, resolution: 'applied' | 'not_applied') =>
  resolveCase(contextOf(), { tenantId: TENANT, name: 'operator', scopes: [] }, id, {
    resolution,
    evidenceRef: 'seen',
    effectRef: null,
    note: null,
    retry: false,
  })
