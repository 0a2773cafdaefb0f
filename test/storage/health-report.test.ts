import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { addDuration, type Latency } from '../../src/domain/latency.ts'
import { openHealthGauges } from '../../src/services/health-gauges.ts'
import { healthReport } from '../../src/services/health-report.ts'
import { measure } from '../../src/services/measure.ts'
import type { Sql } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { addTypeMinutes, emptyDelta } from '../../src/storage/type-minutes.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'test' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() =>
  database.query(({ script }) =>
    script(`truncate operations, operation_items, operation_shards, effects, item_retries, reconciliation_cases,
      dead_letters, type_minutes, workers;
      begin; set local opledger.retention = on; truncate ledger_entries; commit`),
  ),
)

const types = plantedTypes(plantedType('grant', { owner: 'identity-team' }), plantedType('idle'))
const write = (work: (sql: Sql) => Promise<unknown>) => database.query(({ sql }) => work(sql))

const figuresOf = async (type: string, tenantId = 1, installed = types) => {
  const report = await healthReport({ database, types: installed }, { tenantId })
  const found = report.types.find((one) => one.type === type)
  const figures = [...(found?.figures ?? []), ...(found?.cancelContract ?? [])]
  return {
    verdict: found?.verdict,
    value: (name: string) => figures.find((one) => one.figure === name)?.value,
    alarms: figures.filter((one) => one.verdict === 'alarm').map((one) => one.figure),
    figures,
  }
}

const gaugesOf = async () => {
  const gauges = await measure({ database, types })
  return {
    gauges,
    value: (name: string, labels: Record<string, string>) =>
      gauges
        .find((gauge) => gauge.name === name)
        ?.values.find((one) => JSON.stringify(one.labels) === JSON.stringify(labels))?.value,
  }
}

const applied = { entries: [{ state: 'applied' as const }] }

test('an installed type without a row is listed, with four and five figures and nothing wrong', async () => {
  const report = await healthReport({ database, types }, { tenantId: 1 })
  expect(report.types.map((one) => one.type)).toEqual(['grant', 'idle'])
  expect(report.generatedAt).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+00$/)
  for (const one of report.types) {
    expect([one.verdict, one.figures.length, one.cancelContract.length]).toEqual(['ok', 4, 5])
  }
})

test('the oldest waiting item: of a ready shard that is due, or of one whose worker is gone', async () => {
  const due = await plantOperation(database, { type: 'grant', status: 'running', items: [{ key: 'a' }] })
  const later = await plantOperation(database, { type: 'idle', status: 'running', items: [{ key: 'a' }] })
  const lost = await plantOperation(database, { type: 'unknown', status: 'running', items: [{ key: 'a' }] })
  await write(async (sql) => {
    await sql`update operation_shards set run_at = now() - interval '2 hours' where operation_id = ${due}::uuid`
    await sql`update operation_shards set run_at = now() + interval '2 hours' where operation_id = ${later}::uuid`
    await sql`
      update operation_shards set state = 'leased', lease_owner = ${randomUUID()}::uuid,
        lease_expires_at = now() - interval '90 minutes' where operation_id = ${lost}::uuid`
  })
  const grant = await figuresOf('grant')
  expect(grant.value('oldest_waiting_seconds')).toBeCloseTo(7_200, -1)
  expect(grant.alarms).toEqual(['oldest_waiting_seconds'])
  expect(grant.verdict).toBe('alarm')
  expect((await figuresOf('idle')).value('oldest_waiting_seconds')).toBeNull()
  expect((await figuresOf('unknown')).value('oldest_waiting_seconds')).toBeCloseTo(5_400, -1)
  expect((await figuresOf('grant', 2)).value('oldest_waiting_seconds')).toBeNull()

  const { value } = await gaugesOf()
  expect(value('oldest_waiting_seconds', { type: 'grant' })).toBeCloseTo(7_200, -1)
  expect(value('oldest_waiting_seconds', { type: 'idle' })).toBe(0)
  expect(value('shards', { type: 'grant', state: 'ready' })).toBe(1)
  expect(value('shards', { type: 'unknown', state: 'leased' })).toBe(1)
  expect(value('leases_expired', { type: 'unknown' })).toBe(1)
  expect(value('leases_expired', { type: 'grant' })).toBe(0)
  expect(value('operations', { status: 'running' })).toBe(3)
  expect(value('operations', { status: 'paused' })).toBe(0)
})

test('call times against the usual ones, and the retry rate', async () => {
  const add = (durationMs: number, retries: number) =>
    database.query((connection) =>
      addTypeMinutes(connection, randomUUID(), [
        {
          ...emptyDelta('grant'),
          calls: 20,
          errors: 1,
          items: 100,
          rejected: 40,
          retries,
          latency: Array.from({ length: 20 }).reduce<Latency>(
            (latency) => addDuration(latency, durationMs),
            emptyDelta('').latency,
          ),
        },
      ]),
    )
  await add(10, 0)
  await write((sql) => sql`update type_minutes set minute = minute - interval '2 days'`)
  await add(100, 6)
  const grant = await figuresOf('grant')
  expect([grant.value('p95_ms'), grant.value('retry_rate')]).toEqual([98.5, 0.06])
  expect(grant.alarms).toEqual(['p95_ms', 'retry_rate'])
  const { value } = await gaugesOf()
  expect(value('calls_5m', { type: 'grant' })).toBe(20)
  expect(value('downstream_errors_5m', { type: 'grant' })).toBe(1)
  expect(value('rejected_5m', { type: 'grant' })).toBe(40)
  expect(value('call_p95_seconds', { type: 'grant' })).toBe(0.0985)
  expect(value('calls_5m', { type: 'idle' })).toBe(0)
})

test('dead letters, open cases and what is uncertain', async () => {
  const id = await plantOperation(database, {
    type: 'grant',
    status: 'reconciliation_required',
    items: [
      { key: 'a', ...applied },
      { key: 'b', entries: [{ state: 'uncertain' }] },
    ],
  })
  await write(async (sql) => {
    await sql`
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
      select 1, ${id}::uuid, ord, 'grant', 'k', 'e', 'transient', 3, 'f' from generate_series(1, 3) as o (ord)`
    await sql`
      insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause, opened_at,
        closed_at, resolution)
      values (1, ${id}::uuid, 0, 1, 'grant', 'b', 'e', 1, 'worker_lost', now() - interval '25 hours', null, null),
        (1, ${id}::uuid, 0, 2, 'grant', 'c', 'e', 1, 'worker_lost', now() - interval '23 hours', null, null),
        (1, ${id}::uuid, 0, 3, 'grant', 'd', 'e', 1, 'worker_lost', now() - interval '25 hours', now(), 'applied')`
  })
  const grant = await figuresOf('grant')
  expect(grant.alarms).toEqual(['dead_letters', 'uncertain_ratio', 'cases_open_over_24h'])
  expect(['dead_letters', 'uncertain_ratio', 'cases_open_over_24h'].map(grant.value)).toEqual([3, 0.5, 1])
  expect(grant.figures.find((one) => one.figure === 'cases_open_over_24h')?.firstAction).toContain('identity-team')
  const { value } = await gaugesOf()
  expect(value('dead_letters', { type: 'grant' })).toBe(3)
  expect(value('reconciliation_cases_open', { type: 'grant' })).toBe(2)
  expect(value('uncertain_items', { type: 'grant' })).toBe(1)
})

test('one uncertain item of many is no alarm, unless money is touched', async () => {
  const items = Array.from({ length: 1_999 }, (_, index) => ({ key: `k${index}` }))
  const id = await plantOperation(database, {
    type: 'grant',
    status: 'reconciliation_required',
    items: [{ key: 'maybe', entries: [{ state: 'uncertain' }] }, ...items],
  })
  await write((sql) => sql`update operation_shards set applied = 1999, cursor = 2000 where operation_id = ${id}::uuid`)
  expect((await figuresOf('grant')).alarms).toEqual([])
  const money = plantedTypes(plantedType('grant', { touches: ['money'] }))
  expect((await figuresOf('grant', 1, money)).alarms).toEqual(['uncertain_ratio'])
})

test('cancels: time to the final status, and effects that were claimed afterwards', async () => {
  const cancel = (status: 'cancelled' | 'cancel_requested' | 'reconciliation_required') =>
    plantOperation(database, {
      type: 'grant',
      status,
      cancelled: true,
      items: [{ key: 'a', ...applied }, { key: 'b' }],
    })
  const quick = await cancel('cancelled')
  const waiting = await cancel('reconciliation_required')
  await write(async (sql) => {
    await sql`
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
        input_hash, claimed_at, send_by)
      select tenant_id, id || ':a', 'applied', 1, id, 0, 0, 1, 1, 'a', 'h', cancel_requested_at - interval '1 microsecond', now()
      from operations`
    await sql`update operations set cancel_requested_at = cancel_requested_at - interval '1 hour' where id = ${waiting}::uuid`
    await sql`update operations set completed_at = cancel_requested_at + interval '4 seconds' where id = ${quick}::uuid`
  })
  const kept = await figuresOf('grant')
  expect(kept.value('cancel_to_final_p95_seconds')).toBe(4)
  // the second operation's effect now seems to be claimed an hour after its cancel
  expect(kept.value('new_effects_after_cancel')).toBe(1)
  expect(kept.alarms).toEqual(['new_effects_after_cancel'])

  const stuck = await cancel('cancel_requested')
  await write(async (sql) => {
    await sql`update operations set cancel_requested_at = now() - interval '3 minutes' where id = ${stuck}::uuid`
    await sql`update effects set claimed_at = now() - interval '5 hours'`
  })
  const late = await figuresOf('grant')
  expect(late.value('cancel_to_final_p95_seconds')).toBeGreaterThanOrEqual(180)
  expect(late.value('new_effects_after_cancel')).toBe(0)
  expect((await figuresOf('grant', 2)).value('cancel_to_final_p95_seconds')).toBeNull()
})

test('an effect that was claimed again after the cancel is seen far below the cursor too', async () => {
  const retried = {
    key: 'retried',
    entries: [{ state: 'failed' as const, failureClass: 'transient' as const }, ...applied.entries],
  }
  const others = Array.from({ length: 200 }, (_, index) => ({ key: `k${index}`, ...applied }))
  const id = await plantOperation(database, {
    type: 'grant',
    status: 'cancelled',
    cancelled: true,
    items: [retried, ...others],
  })
  await write(
    (sql) => sql`
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
        input_hash, send_by)
      values (1, ${`${id}:retried`}, 'applied', 2, ${id}::uuid, 0, 0, 2, 1, 'retried', 'h', now())`,
  )
  expect((await figuresOf('grant')).value('new_effects_after_cancel')).toBe(1)
})

test('ledger rows missing: claimed or counted, and explained by nothing', async () => {
  const missing = async () => (await figuresOf('grant')).value('ledger_rows_missing')
  const plant = () =>
    plantOperation(database, {
      type: 'grant',
      status: 'cancelled',
      cancelled: true,
      items: [{ key: 'a', ...applied }, { key: 'retry', claimed: true }, { key: 'never' }],
    })
  const id = await plant()
  expect(await missing()).toBe(1)
  await write(
    (sql) => sql`
      insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason)
      select 1, ${id}::uuid, ord, 0, 'e', 1, 'key_known' from unnest('{0,1}'::int[]) as o (ord)`,
  )
  expect(await missing()).toBe(0)
  await write((sql) => sql`update operation_shards set applied = 3, cursor = 3 where operation_id = ${id}::uuid`)
  expect(await missing()).toBe(2)
  await plant()
  expect(await missing()).toBe(3)
  await write((sql) => sql`update operations set completed_at = now() - interval '25 hours'`)
  expect(await missing()).toBe(0)
})

test('workers that send heartbeats', async () => {
  await write(
    (sql) => sql`
      insert into workers (id, host, pid, state, code_version, types, beat_ms, last_seen_at)
      select gen_random_uuid(), 'h', 1, state, 'c1', '[]', 1000, now() - seen
      from unnest('{active,draining,gone,active}'::text[], '{0,0,0,3 seconds}'::interval[]) as w (state, seen)`,
  )
  expect((await gaugesOf()).value('workers_live', {})).toBe(2)
})

test('every gauge names its labels, and no name comes twice', async () => {
  await plantOperation(database, { type: 'grant', status: 'running', items: [{ key: 'a', ...applied }, { key: 'b' }] })
  const { gauges } = await gaugesOf()
  expect(new Set(gauges.map((gauge) => gauge.name)).size).toBe(gauges.length)
  for (const { labelNames, values, name } of gauges) {
    expect(name).toMatch(/^[a-z][a-z0-9_]*$/)
    for (const { labels, value } of values) {
      expect(Object.keys(labels)).toEqual(labelNames)
      expect(Number.isFinite(value)).toBe(true)
    }
  }
})

const healthGaugesOf = async (): Promise<Map<string, number>> => {
  const gauges = await openHealthGauges({ database, types }).read()
  return new Map(
    gauges.flatMap(({ name, values }) =>
      values.map(({ labels, value }): [string, number] => [[name, ...Object.values(labels)].join(' '), value]),
    ),
  )
}

test('the report of every tenant as gauges: the worst figure, and how many are over the threshold', async () => {
  for (const [tenantId, letters] of [
    [1, 2],
    [2, 0],
    [3, 5],
  ] as const) {
    const items = [{ key: 'a', ...applied }]
    const id = await plantOperation(database, { type: 'grant', status: 'running', tenantId, items })
    await write(
      (sql) => sql`
        insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
        select ${tenantId}::int, ${id}::uuid, ord, 'grant', 'k', 'e', 'transient', 3, 'f' from generate_series(1, ${letters}::int) as o (ord)`,
    )
  }
  const gauges = await healthGaugesOf()
  expect([gauges.get('health_figure grant dead_letters'), gauges.get('health_alarms grant dead_letters')]).toEqual([
    5, 2,
  ])
  expect([gauges.get('health_figure idle dead_letters'), gauges.get('health_alarms idle dead_letters')]).toEqual([0, 0])
  // no data: the alarm is there, the figure is not
  expect(gauges.has('health_figure grant p95_ms')).toBe(false)
  expect(gauges.get('health_alarms grant p95_ms')).toBe(0)
  expect(gauges.get('health_tenants_left_out')).toBe(0)
  expect([...gauges.keys()].filter((name) => name.startsWith('health_alarms grant'))).toHaveLength(9)
})

test('the figures are read once a minute, keep standing while they cannot be read, and say how old they are', async () => {
  let reads = 0
  let away = false
  const counted: Database = {
    ...database,
    query(work) {
      reads++
      return away ? Promise.reject(new Error('away')) : database.query(work)
    },
  }
  const clock = vi.spyOn(performance, 'now')
  try {
    const gauges = openHealthGauges({ database: counted, types })
    const first = await gauges.read()
    const before = reads
    await gauges.read()
    expect(reads).toBe(before)
    const later = performance.now() + 61_000
    clock.mockImplementation(() => later)
    away = true
    const old = await gauges.read()
    expect(reads).toBeGreaterThan(before)
    expect(old.find(({ name }) => name === 'health_alarms')).toEqual(first.find(({ name }) => name === 'health_alarms'))
    expect(old.find(({ name }) => name === 'health_age_seconds')?.values[0]?.value).toBeGreaterThan(60)
    away = false
    const fresh = await gauges.read()
    expect(fresh.find(({ name }) => name === 'health_age_seconds')?.values[0]?.value).toBe(0)
  } finally {
    clock.mockRestore()
  }
})
