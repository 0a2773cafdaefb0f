/** Case 11: what a process runs, or ran a moment ago, is not run again by its start or by its recovery. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'
import { openTcpProxy } from '../support/tcp-proxy.ts'

const BOOTS = 10
const LEASE_MS = 2_000

const provider = openProvider()
const types = [provider.type('grant', { leaseMs: LEASE_MS, concurrency: 2, parallelism: 2 })]
let service: TestService
let engines: TestEngine[] = []
beforeAll(async () => {
  service = await openTestService({ types })
})
afterAll(() => service.close())
afterEach(async () => {
  provider.releaseAll()
  await Promise.all(engines.map((engine) => engine.drain()))
  engines = []
})

const start = async (url = service.url, controlUrl = url): Promise<TestEngine> => {
  const engine = await startTestEngine({ url, controlUrl, types, concurrency: 8 })
  engines.push(engine)
  return engine
}
const keys = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => ({ key: `${prefix}-${i}` }))
const shards = (id: string) =>
  service.database.query(
    ({ sql }) => sql<{ owner: string | null; epoch: number; left_ms: number }>`
      select lease_owner as owner, lease_epoch::int as epoch,
        (extract(epoch from lease_expires_at - clock_timestamp()) * 1000)::float8 as left_ms
      from operation_shards where operation_id = ${id}::uuid order by shard`,
  )

describe('a worker that starts', { timeout: PROCESSES_MS }, () => {
  it('takes only what nobody holds: while others hold, wait and start beside it, each item is sent once (case 11)', async () => {
    const held = keys('held', 4)
    for (const { key } of held) provider.hold(key)
    const first = await start()
    const running = await service.submit('grant', held)
    await eventually('every call is in the air', () => held.every(({ key }) => provider.calls(key) === 1))
    const ids: string[] = []
    for (let boot = 0; boot < BOOTS; boot++) {
      // the first look for expired leases, the first claim and a submission, all at once; two workers at a time
      const [submitted] = await Promise.all([service.submit('grant', keys(`boot${boot}`, 6)), start(), start()])
      ids.push(submitted.id)
      await Promise.all(engines.splice(1).map((engine) => engine.drain()))
    }
    for (const id of ids) {
      await untilStatus(service, id, 'succeeded')
      await expectConserved(service, id)
    }
    expect((await shards(running.id)).map(({ owner, epoch }) => [owner, epoch])).toEqual([
      [first.workerId, 1],
      [first.workerId, 1],
    ])
    const calls = Array.from({ length: BOOTS }, (_, boot) => keys(`boot${boot}`, 6))
      .flat()
      .map(({ key }) => provider.calls(key))
    expect(new Set(calls)).toEqual(new Set([1]))
    provider.releaseAll()
    expect((await untilStatus(service, running.id, 'succeeded')).counts).toMatchObject({ applied: 4, uncertain: 0 })
    expect(held.map(({ key }) => provider.calls(key))).toEqual([1, 1, 1, 1])
  })

  it('that lost its own lease and takes it over itself: the first run sends nothing more, and is heard (case 11)', async () => {
    const proxy = await openTcpProxy(service.url)
    try {
      const items = keys('own', 8)
      for (const { key } of items) provider.hold(key)
      // only its heartbeats are cut off: it can claim, and finds its own expired lease
      const engine = await start(service.url, proxy.url)
      const { id } = await service.submit('grant', items)
      const begun = () => items.filter(({ key }) => provider.calls(key) > 0).map(({ key }) => key)
      await eventually('four calls are in the air', () => begun().length === 4)
      const first = begun()
      proxy.pause()
      await eventually('it has a shard a second time', async () =>
        (await shards(id)).some(({ owner, epoch }) => owner === engine.workerId && epoch >= 2),
      )
      // what is in the air is not sent again; what was claimed and not sent may be, where the first run gave it back in time
      expect(first.map((key) => provider.calls(key))).toEqual([1, 1, 1, 1])
      proxy.resume()
      provider.releaseAll()
      const view = await untilStatus(service, id, 'succeeded')
      expect(view.counts).toMatchObject({ applied: 8, uncertain: 0, failed: 0 })
      // where the lease was over, by the first run as a late worker, and never by a second call
      const late = (await service.ledger(id)).filter(
        (entry) => entry.source === 'late_worker' && entry.state === 'applied',
      )
      expect(late.length).toBeGreaterThan(0)
      expect(first).toEqual(expect.arrayContaining(late.map((entry) => entry.itemKey)))
      expect(items.map(({ key }) => provider.calls(key))).toEqual(Array(8).fill(1))
      await expectConserved(service, id)
    } finally {
      proxy.resume()
      await proxy.close()
    }
  })
})
