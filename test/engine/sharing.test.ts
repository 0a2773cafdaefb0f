import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { openTenantTurns } from '../../src/engine/tenant-turns.ts'
import { claimReadyShards, TENANTS_MAX } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { expectConserved, openTestService, type TestService, untilStatus } from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'

const RATE = 40
const PLACES = 4

const provider = openProvider()
const types = [provider.type('rated', { ratePerSecond: RATE, concurrency: 8, parallelism: 2 })]
let service: TestService
beforeAll(async () => {
  service = await openTestService({ types })
})
afterAll(() => service.close())

describe('many tenants', () => {
  const SHARED = { name: 'shared', version: 1, leaseMs: 60_000, windowMax: 1, compensates: false, codeVersion: 'c1' }
  afterEach(() => service.database.query(({ sql }) => sql`delete from operation_shards`))

  /** Each of these tenants has so many shards that are ready. */
  const plant = (
    tenants: { from: number; count: number },
    { shards = 1, type = SHARED.name, dueInHours = 0 }: { shards?: number; type?: string; dueInHours?: number } = {},
  ): Promise<unknown> =>
    service.database.query(
      ({ sql }) => sql`
        insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, run_at)
        select ${tenants.from} + t, gen_random_uuid(), n, ${type}, 1, 0, 1, 0, now() + ${dueInHours}::int * interval '1 hour'
        from generate_series(0, ${tenants.count}::int - 1) t, generate_series(1, ${shards}::int) n`,
    )

  /** A worker of four places: what it takes in hand is done when it asks again. Says whom a round has served, in order. */
  const openWorker = () => {
    const workerId = randomUUID()
    const held: ClaimedShard[] = []
    const turns = openTenantTurns({
      claim: (stretch) =>
        service.database.query((connection) => claimReadyShards(connection, { workerId, types: [SHARED], ...stretch })),
      adopt: (shards) => void held.push(...shards),
      room: () => PLACES - held.length,
    })
    return async (): Promise<number[]> => {
      if ((await turns.take(1)) > 0) await turns.take(PLACES)
      const served = held.splice(0)
      for (const lease of served) {
        await finishShard(service.database, lease)
        await service.database.query(
          ({ sql }) => sql`update operation_shards set state = 'done'
            where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}`,
        )
      }
      return served.map(({ tenantId }) => tenantId)
    }
  }

  it('take turns: 200 of one shard each are served before the one that has 200 of them gets its second', async () => {
    const BIG_TENANT = 100
    await plant({ from: BIG_TENANT, count: 1 }, { shards: 200, dueInHours: -1 })
    await plant({ from: 1_000, count: 200 })
    const round = openWorker()
    const served: number[] = []
    for (let rounds = 0; rounds < 60; rounds++) served.push(...(await round()))
    const small = served.filter((tenant) => tenant !== BIG_TENANT)
    expect(new Set(small).size).toBe(200)
    expect(small).toHaveLength(200)
    const before = served.slice(0, served.lastIndexOf(small.at(-1) ?? 0))
    expect(before.filter((tenant) => tenant === BIG_TENANT).length).toBeLessThanOrEqual(2)
  })

  it('do not wait behind others, however many, whose shards are ready and not due, or for other workers', async () => {
    await plant({ from: 1, count: TENANTS_MAX }, { dueInHours: 1 })
    await plant({ from: 500, count: TENANTS_MAX + 1 }, { type: 'elsewhere' })
    await plant({ from: 1_000, count: 2 })
    await plant({ from: 2_000, count: TENANTS_MAX - 3 }, { dueInHours: 1 })
    await plant({ from: 3_000, count: 1 })
    const round = openWorker()
    expect(await round()).toEqual([1_000, 1_001, 3_000])
    expect(await round()).toEqual([])
    await plant({ from: 1, count: 1 })
    expect(await round()).toEqual([1])
  })

  it('have one place each before one of them has two, also where the turn begins behind the last of them', async () => {
    await plant({ from: 1, count: 2 }, { shards: 3 })
    await plant({ from: 3, count: 2 })
    const round = openWorker()
    // the four places were filled by four tenants: the next turn begins behind the fourth, where there is nobody
    expect(await round()).toEqual([1, 2, 3, 4])
    expect((await round()).sort()).toEqual([1, 1, 2, 2])
    expect(await round()).toEqual([])
  })
})

describe('a rate limit', () => {
  it('holds over two workers: the last call is claimed no earlier than the rate allows', async () => {
    // one shard each at a time, so that neither of them can have all the work
    const engines = [
      await startTestEngine({ url: service.url, types, concurrency: 1 }),
      await startTestEngine({ url: service.url, types, concurrency: 1 }),
    ]
    try {
      const submitted = await Promise.all(
        ['r', 's'].map((prefix) =>
          service.submit(
            'rated',
            Array.from({ length: 60 }, (_, i) => ({ key: `${prefix}-${i}` })),
          ),
        ),
      )
      for (const { id } of submitted) expect((await untilStatus(service, id, 'succeeded')).counts.applied).toBe(60)
      // the rate is kept by when calls may be claimed: nothing that a busy machine does can make that earlier
      const [facts] = await service.database.query(
        ({ sql }) => sql<{ span_ms: number; workers: number }>`
          with o as (
            select id, created_at from operations
            where id in (${submitted[0]?.id ?? ''}::uuid, ${submitted[1]?.id ?? ''}::uuid))
          select (extract(epoch from (select max(claimed_at) from effects where operation_id in (select id from o))
              - (select min(created_at) from o)) * 1000)::float8 as span_ms,
            (select count(distinct worker_id)::int from ledger_entries where operation_id in (select id from o)) as workers`,
      )
      expect(facts?.workers).toBe(2)
      // the last window of each shard is claimed when it may begin, not when it would be over
      expect(facts?.span_ms).toBeGreaterThanOrEqual(((120 - 4 * 8) / RATE) * 1_000)
      for (const { id } of submitted) await expectConserved(service, id)
    } finally {
      for (const engine of engines) await engine.drain()
    }
  })
})
