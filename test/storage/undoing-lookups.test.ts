/** What is found out about a compensation that hangs, and where it is told. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Executor } from '../../src/domain/operation-type.ts'
import { compensateOperation } from '../../src/services/compensate.ts'
import { lookupCase } from '../../src/services/lookup-case.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readPartStarts, readPeriodOperations } from '../../src/storage/ledger-export.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantEffects, plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'
import { claimOne, claimWindow, GRANT, NO_WAKE_UPS, TENANT, tell, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 3, name: 'undoing lookups' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const external = (callTimeoutMs: number): Executor => ({
  kind: 'external',
  callTimeoutMs,
  send: () => Promise.reject(new Error('a planted type is never run')),
  lookup: {
    afterMs: 0,
    timeoutMs: 1_000,
    find: async () => ({ state: 'absent', evidenceRef: 'nothing there' }),
  },
})
/** Granting is over within a millisecond, taking back may last a minute. */
const UNDO_TIMEOUT_MS = 60_000
const types = plantedTypes(
  plantedType('grant', {
    executor: external(1),
    compensation: 'available',
    compensator: external(UNDO_TIMEOUT_MS),
    onAbsent: 'retry',
  }),
)
const context = () => ({ database, types, wakeUps: NO_WAKE_UPS })
const operator = { tenantId: TENANT, name: 'operator', scopes: [] }

const compensated = async (): Promise<{
  of: string
  lease: Awaited<ReturnType<typeof claimOne>>
  effectKey: string
}> => {
  const of = await plantOperation(database, {
    type: 'grant',
    status: 'succeeded',
    items: [{ key: 'a', entries: [{ state: 'applied' }] }],
  })
  await plantEffects(database, of)
  await compensateOperation(context(), operator, of, {
    ...{ preflightId: null, reason: 'a slip', force: [], ifMatchVersion: null },
  })
  const lease = await claimOne(database, { ...GRANT, compensates: true })
  await claimWindow(database, lease, 0, 1)
  return { of, lease, effectKey: `compensate:1:${of}:a` }
}

test('its absence is stable only when its own call cannot arrive any more', async () => {
  const { lease, effectKey } = await compensated()
  await tell(database, lease, { ord: 0, effectKey }, { effect: 'uncertain', item: 'uncertain' })
  const openCase = async () => {
    const [row] = await database.query(
      ({ sql }) => sql<{ id: string; closed: boolean; resolution: string | null }>`
        select id, closed_at is not null as closed, resolution from reconciliation_cases
        where operation_id = ${lease.operationId}::uuid`,
    )
    if (!row) throw new Error('there is no case')
    return row
  }
  const { id } = await openCase()
  await lookupCase(context(), operator, id)
  expect(await openCase()).toMatchObject({ closed: false })
  await database.query(
    ({ sql }) => sql`
      update effects set send_by = send_by - ${UNDO_TIMEOUT_MS} * interval '1 ms' where effect_key = ${effectKey}`,
  )
  await lookupCase(context(), operator, id)
  expect(await openCase()).toMatchObject({ closed: true, resolution: 'not_applied' })
})

test('the export of a period has what a compensation wrote into a ledger that was closed long before', async () => {
  const { of, lease, effectKey } = await compensated()
  await database.query(
    ({ sql }) => sql`
      with o as (
        update operations set created_at = now() - interval '3 months', started_at = now() - interval '3 months',
          completed_at = now() - interval '3 months' where id = ${of}::uuid)
      update operation_shards set last_progress_at = now() - interval '3 months' where operation_id = ${of}::uuid`,
  )
  const [day] = await database.query(
    ({ sql }) => sql<{ from: string; to: string }>`
      select (now() - interval '1 hour')::text as from, (now() + interval '1 hour')::text as to`,
  )
  if (!day) throw new Error('there is no time')
  const found = async () => {
    const [starts, ids] = await database.query(async (connection) => [
      await readPartStarts(connection, TENANT, day, { itemsPerPart: 1, limit: 10 }),
      await readPeriodOperations(connection, TENANT, day, { from: of, to: of, after: null, limit: 10 }),
    ])
    return [starts.some(({ operationId }) => operationId === of), ids]
  }
  expect(await found()).toEqual([false, []])
  await tell(database, lease, { ord: 0, effectKey }, { effect: 'applied', item: 'applied' })
  expect(await found()).toEqual([true, [of]])
})
