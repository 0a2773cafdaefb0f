import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { OperationType } from '../../src/domain/operation-type.ts'
import { plantedType } from '../support/planted-operation.ts'
import { claimOne, claimWindow, expireLease, GRANT } from '../support/races.ts'
import { expectConserved, openTestService, principal, type TestService, untilStatus } from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'
import { openTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts'

/** No test lives to see it run out. */
const LEASE_MS = 600_000
const SOON_MS = 30_000

const provider = openProvider()
const types: OperationType[] = [
  provider.type('grant', { leaseMs: LEASE_MS, concurrency: 4 }),
  plantedType('internal', {
    effect: 'transactional',
    leaseMs: LEASE_MS,
    batch: { maxItems: 10, maxMs: 1_000 },
    executor: { kind: 'transactional', runBatch: async () => undefined },
  }),
]

let service: TestService
const engines: TestEngine[] = []
const proxies: TcpProxy[] = []
beforeAll(async () => {
  service = await openTestService({ types })
})
afterAll(() => service.close())
afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.drain()))
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()))
})

/** A living worker whose work loses its connection at each of these statements, as often as is said. */
const startBehindCuts = async (cuts: { at: string; times: number }[]): Promise<{ cut(): number }> => {
  let cut = 0
  const left = cuts.map((planned) => ({ ...planned }))
  const proxy = await openTcpProxy(service.url, (statement) => {
    const planned = left.find(({ at, times }) => times > 0 && statement.includes(at))
    if (!planned) return 'pass'
    planned.times--
    cut++
    return 'cut'
  })
  proxies.push(proxy)
  engines.push(await startTestEngine({ url: proxy.url, controlUrl: service.url, types, concurrency: 2 }))
  return { cut: () => cut }
}

const itemsOf = (prefix: string, count: number) => Array.from({ length: count }, (_, n) => ({ key: `${prefix}-${n}` }))

const shardOf = async (id: string) => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ state: string; epoch: number; claims: number; isolate_until: number | null; in_flight: number }>`
      select state, lease_epoch::int as epoch, claims, isolate_until, in_flight from operation_shards
      where operation_id = ${id}::uuid`,
  )
  if (!row) throw new Error('there is no such shard')
  return row
}

const START = 'update operations set status = '
const FINISH = 'lease_owner = null'
const ORPHANS = 'lease_epoch < '
const BATCH = 'distinct on (effect_key)'
const UNCHARGE = 'suspect_crashes - 1'

describe('a run that ends in a fault of the database, while its worker lives', () => {
  it.each([
    ['before its first window', START],
    ['when everything is done', FINISH],
  ])('%s: its shard goes on soon, and nobody is taken for dead', async (when, at) => {
    const prefix = when.replaceAll(' ', '_')
    const worker = await startBehindCuts([{ at, times: 2 }])
    const { id } = await service.submit('grant', itemsOf(prefix, 20))
    const view = await untilStatus(service, id, 'succeeded', SOON_MS)
    expect(worker.cut()).toBe(2)
    expect(view.counts).toMatchObject({ applied: 20, uncertain: 0, failed: 0 })
    expect(await shardOf(id)).toEqual({ state: 'done', epoch: 3, claims: 0, isolate_until: null, in_flight: 0 })
    expect(itemsOf(prefix, 20).map(({ key }) => provider.calls(key))).toEqual(Array(20).fill(1))
    await expectConserved(service, id)
  })

  it('with a cancel that waits, and intents of a dead worker: they are explained before it has stopped', async () => {
    const { id } = await service.submit('grant', itemsOf('stopped', 8))
    const dead = await claimOne(service.database, { ...GRANT, leaseMs: LEASE_MS })
    await claimWindow(service.database, dead, 0, 3)
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    await expireLease(service.database, dead)

    const worker = await startBehindCuts([{ at: ORPHANS, times: 2 }])
    const view = await untilStatus(service, id, 'reconciliation_required', SOON_MS)
    expect(worker.cut()).toBe(2)
    expect(view.counts).toMatchObject({ applied: 0, uncertain: 3, unprocessed: 5, inFlight: 0 })
    expect(await shardOf(id)).toMatchObject({ state: 'done', epoch: 4, in_flight: 0 })
    expect((await service.cases(id)).map(({ cause }) => cause)).toEqual(Array(3).fill('worker_lost'))
    expect(itemsOf('stopped', 8).map(({ key }) => provider.calls(key))).toEqual(Array(8).fill(0))
    await expectConserved(service, id)
  })

  it('while it runs a suspect alone: that did not kill anybody, and is no dead letter', async () => {
    const { id } = await service.submit('internal', itemsOf('suspect', 3))
    // as a crash without progress has left it
    await service.database.query(
      ({ sql }) => sql`update operation_shards set claims = 1, isolate_until = 2 where operation_id = ${id}::uuid`,
    )
    const worker = await startBehindCuts([
      { at: BATCH, times: 5 },
      { at: UNCHARGE, times: 5 },
    ])
    const view = await untilStatus(service, id, ['succeeded', 'partially_succeeded', 'failed'], SOON_MS)
    expect(worker.cut()).toBe(10)
    expect(view.counts).toMatchObject({ applied: 3, failed: 0 })
    await expectConserved(service, id)
  })
})
