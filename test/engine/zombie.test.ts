import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { OperationType, SendReport } from '../../src/domain/operation-type.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { renewLeases } from '../../src/storage/run/heartbeat.ts'
import type { Lease } from '../../src/storage/run/lease.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { plantedType } from '../support/planted-operation.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openTcpProxy } from '../support/tcp-proxy.ts'
import { openWorkerFleet } from '../support/worker-process.ts'

const LEASE_MS = 2_000
const APPLIED: SendReport = { outcome: { state: 'applied', effectRef: 'done' }, downstreamError: false }

/** Calls that end when the test says so. */
const openCalls = () => {
  const waiting = new Map<string, (report: SendReport) => void>()
  const begun: string[] = []
  return {
    begun,
    answer(key: string) {
      waiting.get(key)?.(APPLIED)
      waiting.delete(key)
    },
    waiting: () => [...waiting.keys()].sort(),
    send: (key: string) =>
      new Promise<SendReport>((resolve) => {
        begun.push(key)
        waiting.set(key, resolve)
      }),
  }
}
let calls = openCalls()
const type: OperationType = plantedType('held', {
  leaseMs: LEASE_MS,
  concurrency: 3,
  executor: { kind: 'external', callTimeoutMs: 300, send: ({ itemKey }) => calls.send(itemKey), lookup: null },
})

let service: TestService
let engines: TestEngine[] = []
beforeAll(async () => {
  service = await openTestService({ types: [type] })
})
afterAll(() => service.close())
afterEach(async () => {
  for (const key of calls.waiting()) calls.answer(key)
  await Promise.all(engines.map((engine) => engine.drain()))
  engines = []
  calls = openCalls()
})

const shardOf = async (id: string) => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ owner: string | null; epoch: number; cursor: number }>`
      select lease_owner as owner, lease_epoch::int as epoch, cursor from operation_shards
      where operation_id = ${id}::uuid`,
  )
  if (!row) throw new Error('there is no such shard')
  return row
}

describe('a worker that lost its lease', () => {
  it('case 1, case 3, case 17: its late outcomes are kept as evidence, and its claims, moves and finish touch nothing', async () => {
    const proxy = await openTcpProxy(service.url)
    try {
      // only its heartbeats are cut off: what it has to say about its calls still arrives
      const zombie = await startTestEngine({ url: service.url, controlUrl: proxy.url, types: [type] })
      engines.push(zombie)
      const { id } = await service.submit(
        'held',
        ['a', 'b', 'c', 'd'].map((key) => ({ key })),
      )
      await eventually('its calls are in the air', () => calls.waiting().length === 3)
      proxy.pause()
      const mine = await shardOf(id)
      expect(mine.owner).toBe(zombie.workerId)
      const lease: Lease = { tenantId: 1, operationId: id, shard: 0, workerId: zombie.workerId, epoch: mine.epoch }

      const successor = await startTestEngine({ url: service.url, types: [type] })
      engines.push(successor)
      await eventually('it was taken over', async () => (await shardOf(id)).owner === successor.workerId)
      await eventually('the orphans are explained', async () => (await service.view(id)).counts.uncertain >= 3)
      const causes = (await service.cases(id)).map((found) => found.cause)
      expect(causes).toEqual(causes.map(() => 'worker_lost'))

      expect((await shardOf(id)).epoch).toBeGreaterThan(mine.epoch)
      const refusals = await service.database.query(async (connection) => ({
        claim: await claimIntents(connection, lease, { from: mine.cursor, to: 4, sendByMs: 1_000 }),
        renewed: await renewLeases(connection, zombie.workerId, [lease]),
      }))
      expect(refusals).toEqual({ claim: null, renewed: [] })
      expect(await finishShard(service.database, lease)).toBeNull()

      for (const key of ['a', 'b', 'c']) calls.answer(key)
      await eventually('the late evidence closed them', async () => (await service.view(id)).counts.uncertain <= 1)
      // the fourth was never sent; whether a takeover had called it uncertain before the first worker said so is a matter of luck
      const late = (await service.ledger(id)).filter(
        ({ source, itemKey }) => source === 'late_worker' && itemKey !== 'd',
      )
      expect(late.map((entry) => [entry.itemKey, entry.state, entry.workerId])).toEqual(
        ['a', 'b', 'c'].map((key) => [key, 'applied', zombie.workerId]),
      )
      for (const found of (await service.cases(id)).filter((found) => found.itemKey !== 'd')) {
        expect(found.resolution).toMatchObject({ resolution: 'applied' })
      }
      await expectConserved(service, id)

      // the fourth item was claimed by the first worker, or is run by the second one: once in either case
      await eventually('the rest ends', async () => {
        for (const key of calls.waiting()) calls.answer(key)
        return ['succeeded', 'reconciliation_required'].includes((await service.view(id)).status)
      })
      expect([...calls.begun].sort()).toEqual([...new Set(calls.begun)].sort())
      proxy.resume()
      await expectConserved(service, id)
    } finally {
      proxy.resume()
      await proxy.close()
    }
  })
})

describe('a worker process that is stopped past its lease and continues', { timeout: PROCESSES_MS }, () => {
  let effects: EffectServer
  let grants: TestService
  const file = writeTypeFile([grantType('grant', {}, { lookup: grantLookup(100), on_absent: 'retry' })])
  beforeAll(async () => {
    effects = await startEffectServer()
    grants = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
  })
  afterAll(async () => {
    await grants.close()
    await effects.close()
    file.remove()
  })

  it('case 3: repeats no effect, and what it had in flight ends with evidence', async () => {
    const fleet = openWorkerFleet({
      databaseUrl: grants.url,
      typeFiles: [file.file],
      env: { EFFECTS_URL: effects.url },
    })
    try {
      const zombie = await fleet.start()
      const items = Array.from({ length: 40 }, (_, i) => ({ key: `z-${i}`, input: { delay_ms: 200 } }))
      const { id } = await grants.submit('grant', items)
      await eventually('calls are in the air', async () => {
        const { counts } = await grants.view(id)
        return counts.applied > 0 && counts.inFlight > 0
      })
      zombie.kill('SIGSTOP')
      const successor = await fleet.start()
      await eventually('it was taken over', async () =>
        grants.database.query(async ({ sql }) => {
          const rows = await sql`select 1 from operation_shards where lease_owner = ${successor.id}::uuid`
          return rows.length > 0
        }),
      )
      zombie.kill('SIGCONT')
      const view = await untilStatus(grants, id, 'succeeded')
      expect(view.counts).toMatchObject({ applied: 40, uncertain: 0 })
      for (const item of items) expect(effects.entry(`grant:${item.key}`).applied, item.key).toBe(1)
      await expectConserved(grants, id)
      // it is alive and works on under new epochs
      expect(zombie.child.exitCode).toBeNull()
      const after = await grants.submit('grant', [{ key: 'after' }])
      await untilStatus(grants, after.id, 'succeeded')
    } finally {
      await fleet.stop()
    }
  })
})
