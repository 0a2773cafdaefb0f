import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { expectConserved, openTestService, type TestService, untilStatus } from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'

const RATE = 40
const BIG_TENANT = 100

const provider = openProvider()
const types = [provider.type('rated', { ratePerSecond: RATE, concurrency: 8, parallelism: 2 })]
let service: TestService
beforeAll(async () => {
  service = await openTestService({ types })
})
afterAll(() => service.close())

describe('many tenants', () => {
  it('take turns: 200 of one shard each are served before the one that has 200 of them gets its second', async () => {
    await service.database.query(
      ({ sql }) => sql`
        insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, run_at)
        select ${BIG_TENANT}, gen_random_uuid(), n, 'shared', 1, 0, 1, 0, now() - interval '1 hour' from generate_series(1, 200) n
        union all
        select 1000 + n, gen_random_uuid(), 0, 'shared', 1, 0, 1, 0, now() from generate_series(1, 200) n`,
    )
    const workerId = randomUUID()
    const shared = [
      { name: 'shared', version: 1, leaseMs: 60_000, windowMax: 1, compensates: false, codeVersion: 'c1' },
    ]
    const served: number[] = []
    let afterTenant = 0
    for (let claims = 0; claims < 60; claims++) {
      const limit = 4
      const claimed = await service.database.query((connection) =>
        claimReadyShards(connection, { workerId, types: shared, limit, perTenant: 1, afterTenant }),
      )
      const last = claimed.at(-1)
      afterTenant = claimed.length < limit || !last ? 0 : last.tenantId
      for (const lease of claimed) {
        served.push(lease.tenantId)
        await finishShard(service.database, lease)
        // what was served is done; the next turn is another shard's
        await service.database.query(
          ({ sql }) => sql`update operation_shards set state = 'done'
            where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}`,
        )
      }
    }
    const small = served.filter((tenant) => tenant !== BIG_TENANT)
    expect(new Set(small).size).toBe(200)
    expect(small).toHaveLength(200)
    const before = served.slice(0, served.lastIndexOf(small.at(-1) ?? 0))
    expect(before.filter((tenant) => tenant === BIG_TENANT).length).toBeLessThanOrEqual(2)
    await service.database.query(({ sql }) => sql`delete from operation_shards where type = 'shared'`)
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
