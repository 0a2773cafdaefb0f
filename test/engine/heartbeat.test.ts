import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  eventually,
  expectConserved,
  openTestService,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'
import { openTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts'

// long enough that a busy machine does not end it by itself
const LEASE_MS = 4_000
const BEAT_MS = LEASE_MS / 3

const provider = openProvider()
const types = [provider.type('grant', { leaseMs: LEASE_MS, concurrency: 2 })]
let service: TestService
let proxy: TcpProxy
let engines: TestEngine[] = []

beforeAll(async () => {
  service = await openTestService({ types })
})
afterAll(() => service.close())
beforeEach(async () => {
  proxy = await openTcpProxy(service.url)
})
afterEach(async () => {
  proxy.resume()
  provider.releaseAll()
  for (const engine of engines) await engine.drain()
  engines = []
  await proxy.close()
})

const start = async (url: string): Promise<TestEngine> => {
  const engine = await startTestEngine({ url, types })
  engines.push(engine)
  return engine
}
const keys = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => ({ key: `${prefix}-${i}` }))
const shard = async (id: string) => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ owner: string; epoch: number; expires: string; left_ms: number }>`
      select lease_owner as owner, lease_epoch::int as epoch, lease_expires_at as expires,
        (extract(epoch from lease_expires_at - clock_timestamp()) * 1000)::float8 as left_ms
      from operation_shards where operation_id = ${id}::uuid`,
  )
  if (!row) throw new Error('there is no such shard')
  return row
}

describe('case 9: heartbeats that do not arrive', () => {
  it('for less than the lease: nothing happens', async () => {
    const worker = await start(proxy.url)
    const other = await start(service.url)
    // the first item is held by whoever takes it; the test needs it to be the worker behind the proxy
    await other.drain()
    engines = [worker]
    for (const item of keys('short', 2)) provider.hold(item.key)
    const { id } = await service.submit('grant', keys('short', 10))
    await eventually('it runs', () => provider.calls('short-1') === 1)
    await start(service.url)
    for (let rounds = 0; rounds < 3; rounds++) {
      const { expires } = await shard(id)
      // just renewed: then one beat is lost, and the next one comes
      await eventually('it was renewed', async () => (await shard(id)).expires !== expires, { everyMs: 5 })
      proxy.pause()
      await eventually('a beat was lost', async () => (await shard(id)).left_ms < LEASE_MS - 1.5 * BEAT_MS)
      proxy.resume()
    }
    provider.releaseAll()
    const view = await untilStatus(service, id, 'succeeded')
    expect(view.counts).toMatchObject({ applied: 10, uncertain: 0 })
    expect((await service.ledger(id)).map((entry) => entry.workerId)).toEqual(Array(10).fill(worker.workerId))
    expect(new Set(keys('short', 10).map(({ key }) => provider.calls(key)))).toEqual(new Set([1]))
  })

  it('for longer than the lease: the worker has stopped sending before anybody may take over', async () => {
    await start(proxy.url)
    for (const item of keys('long', 2)) provider.hold(item.key)
    const { id } = await service.submit('grant', keys('long', 20))
    // two calls in the air and two more claimed, waiting for their turn
    await eventually('it runs', async () => (await service.view(id)).counts.inFlight === 4)
    proxy.pause()
    await eventually('its lease is nearly over', async () => (await shard(id)).left_ms < 100, { everyMs: 5 })
    // the calls come back now: their successors must not be sent any more
    provider.releaseAll()
    await eventually('the lease is over', async () => (await shard(id)).left_ms < 0)
    expect(keys('long', 20).map(({ key }) => provider.calls(key))).toEqual([1, 1, ...Array(18).fill(0)])
    const other = await start(service.url)
    const view = await untilStatus(service, id, ['reconciliation_required', 'running'])
    expect(view.counts.total).toBe(20)
    await eventually(
      'it was taken over',
      async () => (await shard(id)).owner === other.workerId || (await shard(id)).epoch >= 2,
    )
    await eventually('the others are done', async () => (await service.view(id)).counts.applied >= 16)
    proxy.resume()
    // what the first worker saw arrives late: two effects were applied, and two intents were never sent
    await untilStatus(service, id, 'succeeded')
    expect(new Set(keys('long', 20).map(({ key }) => provider.calls(key)))).toEqual(new Set([1]))
    const late = (await service.ledger(id)).filter((entry) => entry.source === 'late_worker')
    expect(late.map((entry) => [entry.itemKey, entry.state, entry.reasonCode]).sort()).toEqual([
      ['long-0', 'applied', null],
      ['long-1', 'applied', null],
      ['long-2', 'failed', 'NOT_SENT'],
      ['long-3', 'failed', 'NOT_SENT'],
    ])
    await expectConserved(service, id)
  })
})

describe('case 25, case 63: wake-ups that are lost', () => {
  it('cost latency only: work is claimed by the poll, and a cancel is seen by the next heartbeat', async () => {
    await start(service.url)
    const killing = setInterval(() => {
      service.database
        .query(
          ({ sql }) => sql`
            select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name like '%wake-ups%'`,
        )
        .catch(() => {})
    }, 50)
    try {
      for (let round = 0; round < 5; round++) {
        const held = keys(`wake${round}`, 2)
        for (const item of held) provider.hold(item.key)
        const { id } = await service.submit('grant', keys(`wake${round}`, 10))
        await eventually('it was claimed', () => provider.calls(`wake${round}-0`) === 1, { withinMs: 5_000 })
        await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
        await eventually('it was seen', async () => (await service.view(id)).cancel.acknowledgedAt !== null)
        const [seen] = await service.database.query(
          ({ sql }) => sql<{ ms: number }>`
            select (extract(epoch from max(s.stop_seen_at) - max(o.cancel_requested_at)) * 1000)::float8 as ms
            from operations o join operation_shards s on s.operation_id = o.id where o.id = ${id}::uuid`,
        )
        // a beat, and the statements of one; far below the lease
        expect(seen?.ms).toBeLessThan(2 * BEAT_MS)
        for (const item of held) provider.release(item.key)
        const view = await untilStatus(service, id, 'cancelled')
        expect(view.counts).toMatchObject({ applied: 2, unprocessed: 8 })
      }
    } finally {
      clearInterval(killing)
    }
  })
})
