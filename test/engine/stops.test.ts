import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit } from '../support/processes.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { BUSY, openProvider } from '../support/service-provider.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet } from '../support/worker-process.ts'

const now = { reason: null, ifMatchVersion: null }
const provider = openProvider()
const types = [
  provider.type('grant'),
  provider.type('slow-retry', { retry: { maxAttempts: 3, baseMs: 3_600_000, maxMs: 3_600_000 } }),
  provider.type('switched'),
]
let service: TestService
let engine: TestEngine
beforeAll(async () => {
  service = await openTestService({ types })
  engine = await startTestEngine({ url: service.url, types, concurrency: 12 })
})
afterEach(() => provider.releaseAll())
afterAll(async () => {
  await engine.drain()
  await service.close()
})

const keys = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => ({ key: `${prefix}-${i}` }))
const cancel = (id: string) => service.services.cancelOperation(principal, id, now)

describe('a cancel', () => {
  it('in a backoff wait gives the retry up: cancelled, with the failure standing and no retry shown', async () => {
    provider.answer('w-0', BUSY)
    const { id } = await service.submit('slow-retry', keys('w', 2))
    await eventually('the item waits', async () => (await service.items(id)).get('w-0')?.retryAt != null)
    await eventually('nothing else is left', async () => (await service.view(id)).counts.unprocessed === 0)
    await cancel(id)
    const view = await untilStatus(service, id, 'cancelled')
    expect(view.counts).toMatchObject({ applied: 1, failed: 1 })
    expect((await service.items(id)).get('w-0')).toMatchObject({ state: 'failed', retryAt: null, attempt: 1 })
    expect(provider.calls('w-0')).toBe(1)
  })

  it('case 29: stops the operation it names and no other of the type', async () => {
    const prefixes = Array.from({ length: 10 }, (_, i) => `scope${i}`)
    for (const prefix of prefixes) provider.hold(`${prefix}-0`)
    const operations = await Promise.all(prefixes.map((prefix) => service.submit('grant', keys(prefix, 12))))
    await eventually('all ten run', () => prefixes.every((prefix) => provider.calls(`${prefix}-0`) === 1))
    const [named, ...others] = operations
    if (!named) throw new Error('nothing was submitted')
    await cancel(named.id)
    provider.releaseAll()
    for (const { id } of others) expect((await untilStatus(service, id, 'succeeded')).counts.applied).toBe(12)
    const view = await untilStatus(service, named.id, ['cancelled', 'completed_after_cancel'])
    expect(view.cancel.acknowledgedAt).not.toBeNull()
    await expectConserved(service, named.id)
  })

  it('collects what is in flight, starts nothing after the acknowledgement, and says so', async () => {
    for (const item of keys('fly', 4)) provider.hold(item.key)
    const { id } = await service.submit('grant', keys('fly', 40))
    await eventually('four calls are in the air', () => keys('fly', 4).every(({ key }) => provider.calls(key) === 1))
    const { status, operation } = await cancel(id)
    expect({ status, operation: operation.status }).toEqual({ status: 202, operation: 'cancel_requested' })
    await eventually('it was acknowledged', async () => (await service.view(id)).cancel.acknowledgedAt !== null)
    const calls = provider.log().length
    provider.releaseAll()
    const view = await untilStatus(service, id, 'cancelled')
    expect(provider.log()).toHaveLength(calls)
    expect(view.counts).toMatchObject({ applied: 4, unprocessed: 36, inFlight: 0 })
    expect(view.cancel.appliedAfterRequest).toBe(4)
    const intents = await service.database.query(
      ({ sql }) => sql`select 1 from effects e join operations o on o.id = e.operation_id
        where o.id = ${id}::uuid and e.claimed_at > o.cancel_requested_at`,
    )
    expect(intents).toEqual([])
    await expectConserved(service, id)
  })

  it('comes from the system when the deadline passes', async () => {
    provider.hold('deadline-0')
    const deadlineAt = new Date(Date.now() + 500).toISOString()
    const { id } = await service.submit('grant', keys('deadline', 30), { deadlineAt })
    await eventually('it was cancelled', async () => (await service.view(id)).cancel.requestedAt !== null)
    expect((await service.view(id)).cancel).toMatchObject({ requestedBy: 'system:deadline' })
    provider.releaseAll()
    await untilStatus(service, id, ['cancelled', 'completed_after_cancel'])
    await expectConserved(service, id)
  })
})

describe('the kill switch of a type', () => {
  it('stops what runs and claims nothing, until it is switched on again', async () => {
    for (const item of keys('switch', 40)) provider.hold(item.key)
    const { id } = await service.submit('switched', keys('switch', 40))
    await eventually('it runs', () => keys('switch', 4).every(({ key }) => provider.calls(key) === 1))
    await service.services.pauseOperationType(principal, 'switched', { reason: 'they asked' })
    const later = await service.submit('switched', keys('later', 3))
    const states = () =>
      service.database.query(
        ({ sql }) => sql<{ state: string }>`
          select state from operation_shards where operation_id in (${id}::uuid, ${later.id}::uuid)`,
      )
    // a call ends now and then, far fewer than there are: what is in flight is collected and nothing follows
    const ending = keys('switch', 40).map((item) => item.key)
    await eventually(
      'the shards were given back',
      async () => {
        provider.release(ending.shift() ?? '')
        return (await states()).every((row) => row.state === 'ready')
      },
      { everyMs: 150 },
    )
    expect((await service.view(id)).counts.unprocessed).toBeGreaterThan(0)
    const calls = provider.log().length
    // another operation, submitted after, runs through: the worker has looked for work and took nothing of the type
    const other = await service.submit('grant', keys('beside', 1))
    await untilStatus(service, other.id, 'succeeded')
    expect(provider.log()).toHaveLength(calls + 1)
    expect(await service.view(id)).toMatchObject({ status: 'running', counts: { inFlight: 0 } })
    provider.releaseAll()
    await service.services.resumeOperationType(principal, 'switched', { reason: null })
    expect((await untilStatus(service, id, 'succeeded')).counts.applied).toBe(40)
    await untilStatus(service, later.id, 'succeeded')
    await expectConserved(service, id)
  })
})

describe('a pause', () => {
  it('stops at the checkpoint and goes on from it', async () => {
    for (const item of keys('pause', 4)) provider.hold(item.key)
    const { id } = await service.submit('grant', keys('pause', 40))
    await eventually('it runs', () => keys('pause', 4).every(({ key }) => provider.calls(key) === 1))
    await service.services.pauseOperation(principal, id, now)
    provider.releaseAll()
    const paused = await untilStatus(service, id, 'paused')
    expect(paused.counts.inFlight).toBe(0)
    const [before] = (await service.services.listCheckpoints(principal, id, { limit: 10, position: null }))?.items ?? []
    expect(before).toMatchObject({ state: 'done', owner: null })
    await service.services.resumeOperation(principal, id, now)
    expect((await untilStatus(service, id, 'succeeded')).counts.applied).toBe(40)
    expect(new Set(keys('pause', 40).map(({ key }) => provider.calls(key)))).toEqual(new Set([1]))
    await expectConserved(service, id)
  })
})

describe('a stop that its worker does not live to see', { timeout: PROCESSES_MS }, () => {
  let effects: EffectServer
  let grants: TestService
  const file = writeTypeFile([grantType('grant')])
  beforeAll(async () => {
    effects = await startEffectServer()
    grants = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
  })
  afterAll(async () => {
    await grants.close()
    await effects.close()
    file.remove()
  })

  it('case 51: a pause survives the kill of its worker: taken over to be paused, not to be run', async () => {
    const fleet = openWorkerFleet({
      databaseUrl: grants.url,
      typeFiles: [file.file],
      env: { EFFECTS_URL: effects.url },
    })
    try {
      const first = await fleet.start()
      const items = keys('p', 40).map((item) => ({ ...item, input: { delay_ms: 300 } }))
      const { id } = await grants.submit('grant', items)
      await eventually('calls are in the air', async () => (await grants.view(id)).counts.inFlight > 0)
      first.kill('SIGSTOP') // so that it cannot see the pause
      await grants.services.pauseOperation(principal, id, now)
      first.kill('SIGKILL')
      await waitForExit(first.child)
      const requests = Object.keys(effects.entries()).length
      expect((await grants.view(id)).status).toBe('pause_requested')

      await fleet.start()
      const view = await untilStatus(grants, id, 'paused')
      expect(view.counts.inFlight).toBe(0)
      expect(view.counts.uncertain).toBeGreaterThan(0)
      expect(Object.keys(effects.entries())).toHaveLength(requests)
      await expectConserved(grants, id)

      await grants.services.resumeOperation(principal, id, now)
      await untilStatus(grants, id, 'reconciliation_required')
      for (const { key } of items) expect(effects.entry(`grant:${key}`).requests).toBeLessThanOrEqual(1)
      await expectConserved(grants, id)
    } finally {
      await fleet.stop()
    }
  })
})
