/** Operations that no worker goes on with: left alone by claims, paused with the reason, and what was in flight is explained. */
import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { CHECKPOINT_SCHEMA } from '../../src/domain/checkpoint.ts'
import { formatId } from '../../src/domain/ids.ts'
import { incompatibleCheckpoints } from '../../src/maintenance/incompatible.ts'
import { cancelBySystem } from '../../src/services/stop.ts'
import { FIRST_CHECKPOINT, readOpenCheckpoints } from '../../src/storage/checkpoints.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { claimExpiredShards, claimReadyShards, othersWait } from '../../src/storage/run/claim-shards.ts'
import { resume } from '../../src/storage/stops.ts'
import { registerWorker } from '../../src/storage/worker-presence.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedType, plantedTypes } from '../support/planted-operation.ts'
import {
  claimOne,
  claimWindow,
  GRANT,
  items,
  NO_WAKE_UPS,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from '../support/races.ts'

const NEWER = CHECKPOINT_SCHEMA + 1
/** Operations of the races are of version 1. */
const installed = plantedTypes(plantedType('grant', { version: 2 }))

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'incompatible' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(async () => {
  await wipe(database)
  await script('truncate workers')
})

const script = (text: string): Promise<void> => database.query((connection) => connection.script(text))
const sweep = async (types = installed): Promise<void> => {
  const context = { database, types, wakeUps: NO_WAKE_UPS }
  await incompatibleCheckpoints(context, pino({ level: 'silent' }), { graceMs: 0 }).runOnce()
}
/** `graceMs` is 0 above, so that a worker has to be seen in the future to be seen lately. */
const seeWorker = async (types: string[], knows = CHECKPOINT_SCHEMA, tenantId?: number): Promise<void> => {
  const id = randomUUID()
  const worker = { id, host: 'h', pid: 1, codeVersion: 'c', types, beatMs: 10_000 }
  await database.query((connection) =>
    registerWorker(connection, { ...worker, ...(tenantId !== undefined && { tenantId }) }),
  )
  await script(
    `update workers set checkpoint_schema = ${knows}, last_seen_at = now() + interval '1 hour' where id = '${id}'`,
  )
}
const stateOf = async (id: string) => {
  const [state] = await database.query((connection) => readOperationStates(connection, [{ tenantId: TENANT, id }]))
  return state
}
const writtenByNewer = (id: string): Promise<void> =>
  script(`update operation_shards set schema_version = ${NEWER} where operation_id = '${id}'`)
const ofVersion = (version: number): Promise<void> =>
  script(`update operations set type_version = ${version}; update operation_shards set type_version = ${version}`)
const runOut = (): Promise<void> =>
  script(`update operation_shards set lease_expires_at = now() - interval '1 s' where state = 'leased'`)
const resumeIt = (id: string): Promise<boolean> =>
  resume(database, { tenantId: TENANT, operationId: id, actor: 'tester', reason: null })

describe('a checkpoint', () => {
  test('says from the claim on what has it in hand', async () => {
    const id = await storeOperation(database, { items: items(2) })
    const read = () =>
      database.query(
        ({ sql }) => sql`select schema_version, code_version from operation_shards where operation_id = ${id}::uuid`,
      )
    expect(await read()).toEqual([{ schema_version: CHECKPOINT_SCHEMA, code_version: null }])
    await claimOne(database)
    expect(await read()).toEqual([{ schema_version: CHECKPOINT_SCHEMA, code_version: 'c1' }])
    await runOut()
    const types = [{ ...GRANT, codeVersion: 'c2' }]
    await database.query((connection) => claimExpiredShards(connection, { workerId: randomUUID(), types, limit: 1 }))
    expect(await read()).toEqual([{ schema_version: CHECKPOINT_SCHEMA, code_version: 'c2' }])
  })

  test('and so does each entry of the ledger', async () => {
    const id = await storeOperation(database, { items: items(1, () => 'k') })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 1)
    await tell(database, lease, { ord: 0, effectKey: 'k' }, { effect: 'applied', item: 'applied' })
    const entries = await database.query(
      ({ sql }) => sql`select schema_version, code_version from ledger_entries where operation_id = ${id}::uuid`,
    )
    expect(entries).toEqual([{ schema_version: 1, code_version: 'c1' }])
  })

  test('in a newer form is claimed by nobody, and makes nobody give up its turn', async () => {
    const claim = { workerId: randomUUID(), types: [GRANT], limit: 9 }
    const claims = () =>
      database.query(async (connection) => [
        (await claimReadyShards(connection, { ...claim, perTenant: 9, afterTenant: 0 })).shards.length,
        (await claimExpiredShards(connection, claim)).length,
        await othersWait(connection, [GRANT]),
      ])
    const id = await storeOperation(database, { items: items(2) })
    await writtenByNewer(id)
    expect(await claims()).toEqual([0, 0, false])
    await script(`update operation_shards set schema_version = ${CHECKPOINT_SCHEMA}`)
    await claimOne(database)
    await runOut()
    await writtenByNewer(id)
    expect(await claims()).toEqual([0, 0, false])
    await script(`update operation_shards set schema_version = ${CHECKPOINT_SCHEMA}`)
    expect(await claims()).toEqual([0, 1, false])
  })
})

describe('an operation that no worker goes on with', () => {
  test.each([
    [
      'its type has a newer version now',
      async () => {},
      /^it was accepted with version 1 of grant, version 2 is installed/,
      installed,
    ],
    [
      'a newer opledger had it in hand',
      writtenByNewer,
      new RegExp(`^its checkpoint has form ${NEWER}`),
      plantedTypes(plantedType('grant', { version: 1 })),
    ],
  ])('is paused with the reason (%s), and again when it is resumed', async (_, make, reason, types) => {
    const id = await storeOperation(database, { items: items(3), shards: 2 })
    await make(id)
    for (let times = 0; times < 2; times++) {
      await sweep(types)
      expect(await stateOf(id)).toMatchObject({
        status: 'paused',
        error: { code: 'checkpoint-incompatible', detail: expect.stringMatching(reason) },
      })
      expect(await resumeIt(id)).toBe(true)
      expect(await stateOf(id)).toMatchObject({ status: 'pending', error: null })
    }
  })

  test('goes on when such a worker is there again', async () => {
    const id = await storeOperation(database, { items: items(3) })
    await sweep()
    await seeWorker(['grant@1'])
    await resumeIt(id)
    await sweep()
    expect(await stateOf(id)).toMatchObject({ status: 'pending', error: null })
    expect((await claimOne(database)).operationId).toBe(id)
  })

  test('has what was in flight explained: nobody says that it was not sent, and nothing else is touched', async () => {
    const id = await storeOperation(database, { items: items(5) })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 2)
    await sweep()
    expect(await stateOf(id)).toMatchObject({ error: null }) // its lease has not run out
    await runOut()
    await sweep()
    expect(await stateOf(id)).toMatchObject({ status: 'paused', uncertain: 2, inFlight: 0, applied: 0 })
    const cases = await database.query(
      ({ sql }) => sql`select cause from reconciliation_cases where operation_id = ${id}::uuid and closed_at is null`,
    )
    expect(cases).toEqual([{ cause: 'worker_lost' }, { cause: 'worker_lost' }])
    const [shard] = await database.query(
      ({ sql }) => sql`select cursor, state from operation_shards where operation_id = ${id}::uuid`,
    )
    expect(shard).toEqual({ cursor: 2, state: 'done' })
  })

  test('is cancelled where somebody asks for it, also with something in flight', async () => {
    const id = await storeOperation(database, { items: items(5) })
    await claimWindow(database, await claimOne(database), 0, 1)
    await cancelBySystem(
      { database, wakeUps: NO_WAKE_UPS },
      { tenantId: TENANT, operationId: id },
      'system:test',
      'enough',
    )
    await runOut()
    await sweep()
    expect(await stateOf(id)).toMatchObject({ status: 'reconciliation_required', uncertain: 1, inFlight: 0 })
  })

  test('in a newer form keeps what is in flight: an older worker does not know what it means', async () => {
    const id = await storeOperation(database, { items: items(5) })
    await claimWindow(database, await claimOne(database), 0, 1)
    await writtenByNewer(id)
    await runOut()
    await sweep(plantedTypes(plantedType('grant', { version: 1 })))
    expect(await stateOf(id)).toMatchObject({ status: 'pause_requested', inFlight: 1, uncertain: 0 })
  })
})

describe('nothing is paused', () => {
  test.each([
    ['of a type that is not installed here', plantedTypes(), async () => {}],
    ['that is of the installed version, though no worker is there', plantedTypes(plantedType('grant')), async () => {}],
    [
      'that is of a newer version: this process is what is left of the older ones',
      plantedTypes(plantedType('grant')),
      () => ofVersion(2),
    ],
    [
      'that is of a newer version, and in a newer form',
      plantedTypes(plantedType('grant')),
      async () => {
        await ofVersion(2)
        await script(`update operation_shards set schema_version = ${NEWER}`)
      },
    ],
    ['while a worker with its version runs', installed, () => seeWorker(['other@1', 'grant@1'])],
    [
      'while a worker with its version takes work of its tenant only',
      installed,
      () => seeWorker(['grant@1'], CHECKPOINT_SCHEMA, TENANT),
    ],
    ['that is not due yet', installed, () => script(`update operation_shards set run_at = now() + interval '1 hour'`)],
    [
      'in a newer form, while a newer worker runs',
      plantedTypes(plantedType('grant')),
      async () => {
        await script(`update operation_shards set schema_version = ${NEWER}`)
        await seeWorker(['grant@1'], NEWER)
      },
    ],
  ])('%s', async (_, types, make) => {
    const id = await storeOperation(database, { items: items(3) })
    await make()
    await sweep(types)
    expect(await stateOf(id)).toMatchObject({ status: 'pending', error: null })
  })

  test('and nothing in flight is explained, by a process with an older version', async () => {
    const id = await storeOperation(database, { items: items(5) })
    await claimWindow(database, await claimOne(database), 0, 2)
    await ofVersion(2)
    await runOut()
    await sweep(plantedTypes(plantedType('grant')))
    expect(await stateOf(id)).toMatchObject({ status: 'pending', error: null, inFlight: 2, uncertain: 0 })
  })
})

test('a worker of another tenant keeps nothing from being paused', async () => {
  const id = await storeOperation(database, { items: items(3) })
  await seeWorker(['grant@1'], CHECKPOINT_SCHEMA, TENANT + 1)
  await sweep()
  expect(await stateOf(id)).toMatchObject({ status: 'paused' })
})

describe('nobody is judged before a minute has passed', () => {
  let laterMs = 0
  const now = performance.now.bind(performance)
  beforeEach(() => {
    laterMs = 0
    vi.spyOn(performance, 'now').mockImplementation(() => now() + laterMs)
  })
  afterEach(() => vi.restoreAllMocks())

  const open = () => {
    const context = { database, types: installed, wakeUps: NO_WAKE_UPS }
    return incompatibleCheckpoints(context, pino({ level: 'silent' }))
  }
  const lookOn = async (service: ReturnType<typeof open>, seconds: number): Promise<void> => {
    for (let passed = 0; passed < seconds; passed += 5) {
      laterMs += 5_000
      await service.runOnce()
    }
  }
  const dueFor = (ms: number): Promise<void> =>
    script(`update operation_shards set run_at = now() - interval '${ms} ms' where state = 'ready'`)
  const statusAfter = async (id: string) => (await stateOf(id))?.status

  test('in which the process looked on: the other hosts may start in a moment', async () => {
    const id = await storeOperation(database, { items: items(3) })
    await dueFor(90_000)
    const service = open()
    await lookOn(service, 55)
    expect(await statusAfter(id)).toBe('pending')
    await lookOn(service, 5)
    expect(await statusAfter(id)).toBe('paused')
  })

  test.each([
    [
      'the database was away',
      async (service: ReturnType<typeof open>) => {
        await script('alter table operations rename to operations_away')
        await expect(service.runOnce()).rejects.toThrow()
        await script('alter table operations_away rename to operations')
      },
    ],
    [
      'the process stood still',
      async () => {
        laterMs += 30_000
      },
    ],
  ])('since %s: no worker could be seen meanwhile', async (_, interrupt) => {
    const id = await storeOperation(database, { items: items(3) })
    await dueFor(90_000)
    const service = open()
    await lookOn(service, 55)
    await interrupt(service)
    await lookOn(service, 55)
    expect(await statusAfter(id)).toBe('pending')
    await lookOn(service, 10)
    expect(await statusAfter(id)).toBe('paused')
  })

  test.each([
    ['since it could be claimed', async () => dueFor(30_000), async () => dueFor(90_000)],
    [
      'since its lease ran out',
      async () => {
        await claimOne(database)
        await runOut()
      },
      async () =>
        script(`update operation_shards set lease_expires_at = now() - interval '90 s' where state = 'leased'`),
    ],
  ])('%s', async (_, lately, longAgo) => {
    const id = await storeOperation(database, { items: items(3) })
    await lately()
    const service = open()
    await lookOn(service, 65)
    expect((await stateOf(id))?.error).toBeNull()
    await longAgo()
    await lookOn(service, 5)
    expect((await stateOf(id))?.error).toMatchObject({ code: 'checkpoint-incompatible' })
  })
})

test('each operation has its turn, however many there are', async () => {
  const ids: string[] = []
  for (let n = 0; n < 5; n++) ids.push(await storeOperation(database, { items: items(1) }))
  const page = await database.query((connection) => readOpenCheckpoints(connection, FIRST_CHECKPOINT, 2, 0))
  expect(page.map(({ operationId }) => operationId)).toEqual([...ids].sort().slice(0, 2))
  const options = { graceMs: 0, operationsPerRun: 2 }
  const context = { database, types: installed, wakeUps: NO_WAKE_UPS }
  const service = incompatibleCheckpoints(context, pino({ level: 'silent' }), options)
  for (let runs = 0; runs < 3; runs++) await service.runOnce()
  for (const id of ids) expect((await stateOf(id))?.status, formatId('op', id)).toBe('paused')
})
