import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Json } from '../../src/domain/operation-type.ts'
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
import { startTestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const STEPS = ['reserve', 'pay', 'ship']
const CONCURRENCY = 4

const { http: plain } = grantType('plain') as { http: { request: Json; outcome: Json } }

/** A step against the effect server: what it does there, the input's member of the step's name chooses. */
const step = (name: string, change: { [member: string]: Json } = {}): Json => ({
  name,
  request: {
    url: '{env.EFFECTS_URL}/grants',
    headers: { 'Idempotency-Key': '{effect_key}' },
    body: { mode: `{input.${name}}`, delay_ms: '{input.delay_ms}' },
    timeout_ms: 900,
  },
  outcome: plain.outcome,
  ...change,
})

const stepped = (name: string, change = {}, http = {}) => ({
  ...grantType(name, { concurrency: CONCURRENCY, parallelism: 2, ...change }),
  http: {
    steps: STEPS.map((one) =>
      step(one, { lookup: grantLookup(100), ...(one === 'ship' ? { irreversible: true } : {}) }),
    ),
    ...http,
  },
})

let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
const file = writeTypeFile([
  stepped('order'),
  stepped('order-once', { retry: { max_attempts: 1 } }),
  stepped('order-looked-up', {}, { on_absent: 'retry' }),
  stepped('order-rated', { rate_limit: { per_second: 500 } }),
])

beforeAll(async () => {
  effects = await startEffectServer()
  service = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
})
afterAll(async () => {
  await service.close()
  await effects.close()
  file.remove()
})
beforeEach(() => {
  fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
})
afterEach(() => fleet.stop())

const itemsOf = (prefix: string, count: number, input: { [member: string]: Json } = {}) =>
  Array.from({ length: count }, (_, i) => ({ key: `${prefix}-${i}`, input }))
const effect = (type: string, key: string, name: string) => effects.entry(`${type}:${key}/${name}`)
const appliedSteps = (type: string, key: string): string[] =>
  STEPS.filter((name) => effect(type, key, name).applied > 0)
const mostApplied = (prefix: string): number =>
  Math.max(
    ...Object.entries(effects.entries())
      .filter(([key]) => key.includes(`:${prefix}-`))
      .map(([, entry]) => entry.applied),
  )

const replay = async (id: string) => {
  const preflight = await service.services.preflightReplay(principal, id, { scope: null })
  const { operation } = await service.services.replayOperation(principal, id, {
    preflightId: preflight.id,
    reason: 'again',
    force: [],
    ifMatchVersion: null,
  })
  return operation
}

describe('a type with steps', { timeout: PROCESSES_MS }, () => {
  it.each(['order', 'order-rated'])('%s brings each item through all of them, in order, once', async (type) => {
    await fleet.start()
    const { id } = await service.submit(type, itemsOf('all', 20))
    const view = await untilStatus(service, id, 'succeeded')
    expect(view.counts).toMatchObject({ applied: 20, failed: 0, uncertain: 0 })
    for (const key of itemsOf('all', 20).map((item) => item.key)) {
      const seen = STEPS.map((name) => effect(type, key, name))
      expect(seen.map(({ requests, applied }) => [requests, applied])).toEqual(STEPS.map(() => [1, 1]))
      expect(seen.map(({ firstAt }) => firstAt)).toEqual(seen.map(({ firstAt }) => firstAt).sort((a, b) => a - b))
    }
    const ledger = await service.ledger(id)
    expect(ledger.filter(({ ord }) => ord === 0)).toMatchObject([
      { step: 'reserve', state: null, reasonCode: 'STEP_APPLIED', effectKey: `${type}:all-0/reserve`, attempt: 1 },
      { step: 'pay', state: null, reasonCode: 'STEP_APPLIED', effectRef: `grant-${type}:all-0/pay` },
      { step: 'ship', state: 'applied', effectRef: `grant-${type}:all-0/ship` },
    ])
    expect((await service.items(id)).get('all-0')).toMatchObject({
      state: 'applied',
      step: 'ship',
      effectKey: `${type}:all-0`,
    })
    await expectConserved(service, id)
  })

  it('shows its steps', async () => {
    expect(await service.services.getOperationType(principal, 'order')).toMatchObject({
      steps: [
        { name: 'reserve', irreversible: false },
        { name: 'pay', irreversible: false },
        { name: 'ship', irreversible: true },
      ],
    })
  })

  it.each([
    ['has them no more', ['reserve', 'deliver'], 'failed'],
    ['has none any more', [], 'failed'],
    ['has them all', STEPS, 'succeeded'],
  ] as const)('sends no step that the installed type does not have: it %s', async (_, steps, status) => {
    const provider = openProvider()
    const { id } = await service.submit('order', [{ key: `changed-${steps.length}-${status}` }])
    const engine = await startTestEngine({
      url: service.url,
      types: [provider.type('order', { steps, leaseMs: 30_000 })],
      maintenance: false,
    })
    await untilStatus(service, id, status)
    await engine.drain()
    const sent = steps.filter((name) => STEPS.includes(name))
    expect(provider.log().map((key) => key.split('/').at(-1))).toEqual(sent)
    const [item] = (await service.items(id)).values()
    if (status === 'failed') {
      const at = STEPS[sent.length]
      expect(item).toMatchObject({ failureClass: 'bug_suspected', reasonCode: 'UNKNOWN_STEP', step: at })
    }
    await expectConserved(service, id)
  })

  it('fails an item at the step that failed; a replay goes on there and repeats nothing', async () => {
    await fleet.start()
    const { id } = await service.submit('order-once', [
      ...itemsOf('paid', 2),
      { key: 'unpaid', input: { pay: 'busy_once' } },
      { key: 'refused', input: { reserve: 'reject' } },
    ])
    await untilStatus(service, id, 'partially_succeeded')
    const items = await service.items(id)
    expect(items.get('unpaid')).toMatchObject({ state: 'failed', failureClass: 'transient', step: 'pay' })
    expect(items.get('refused')).toMatchObject({
      state: 'failed',
      failureClass: 'validation_rejected',
      step: 'reserve',
    })
    expect(appliedSteps('order-once', 'unpaid')).toEqual(['reserve'])
    const filters = { operationId: id, type: null, failureClass: [], incidentId: null, status: [] }
    const letters = await service.services.listDeadLetters(principal, filters, { limit: 10, position: null })
    expect(letters.items).toMatchObject([{ itemKey: 'unpaid', step: 'pay', effectKey: 'order-once:unpaid/pay' }])

    const again = await replay(id)
    await untilStatus(service, again.id, 'succeeded')
    expect(STEPS.map((name) => effect('order-once', 'unpaid', name).requests)).toEqual([1, 2, 1])
    expect(STEPS.map((name) => effect('order-once', 'unpaid', name).applied)).toEqual([1, 1, 1])
    expect((await service.ledger(again.id)).map((entry) => `${entry.step} ${entry.state} ${entry.reasonCode}`)).toEqual(
      ['reserve null STEP_ALREADY_APPLIED', 'pay null STEP_APPLIED', 'ship applied null'],
    )
    const history = await service.services.listItemHistory(principal, id, 'unpaid', { limit: 50, position: null })
    expect(history.items.flatMap(({ entry }) => entry?.step ?? [])).toEqual([
      'reserve',
      'pay',
      'reserve',
      'pay',
      'ship',
    ])
    await expectConserved(service, again.id)
  })

  it('looks a step up whose outcome is unknown, and goes on', async () => {
    await fleet.start()
    const { id } = await service.submit('order-looked-up', [
      { key: 'hung', input: { pay: 'apply_then_hang' } },
      { key: 'lost', input: { reserve: 'reset_once' } },
    ])
    await untilStatus(service, id, 'succeeded')
    for (const key of ['hung', 'lost']) {
      expect(STEPS.map((name) => effect('order-looked-up', key, name).applied)).toEqual([1, 1, 1])
    }
    expect(await service.cases(id)).toMatchObject([{ status: 'resolved' }, { status: 'resolved' }])
    expect(new Set((await service.cases(id)).map((one) => `${one.itemKey} ${one.step}`))).toEqual(
      new Set(['hung pay', 'lost reserve']),
    )
    await expectConserved(service, id)
  })

  it('does no step twice while its workers are killed, and brings every item home', async () => {
    const { id } = await service.submit('order-looked-up', itemsOf('killed', 16, { delay_ms: 60 }))
    const stepsDone = () => Object.keys(effects.entries()).filter((key) => key.includes(':killed-')).length
    let worker = await fleet.start()
    for (const kill of [1, 2]) {
      await eventually('some more steps are under way', () => stepsDone() >= kill * 12)
      worker.kill('SIGKILL')
      await waitForExit(worker.child)
      await expectConserved(service, id)
      worker = await fleet.start()
    }
    const view = await untilStatus(service, id, 'succeeded')
    expect(view.counts).toMatchObject({ applied: 16, failed: 0, uncertain: 0 })
    for (const { key } of itemsOf('killed', 16)) {
      expect(STEPS.map((name) => effect('order-looked-up', key, name).applied)).toEqual([1, 1, 1])
    }
    await expectConserved(service, id)
  })

  it('cancelled on the way: of each item it says how far it got, and that is what was done', async () => {
    await fleet.start()
    // of each shard some are home soon, as many are on their way for a second and more as may be, and the rest waits behind them
    const slow = (ord: number): boolean => ord % 30 >= 6 && ord % 30 < 6 + 2 * CONCURRENCY
    const items = itemsOf('stopped', 60).map((item, ord) => ({ ...item, input: { delay_ms: slow(ord) ? 400 : 0 } }))
    const { id } = await service.submit('order', items)
    await eventually('some items are home', async () => (await service.view(id)).counts.applied >= 5)
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    const view = await untilStatus(service, id, 'cancelled')
    const seen = { applied: 0, failed: 0, unprocessed: 0 }
    for (const { key, state, step: at, reasonCode } of (await service.items(id)).values()) {
      const done = appliedSteps('order', key)
      switch (state) {
        case 'applied':
          expect(done).toEqual(STEPS)
          break
        case 'failed':
          expect(reasonCode).toBe('STOPPED_BETWEEN_STEPS')
          expect(done).not.toEqual([])
          expect(done).toEqual(STEPS.slice(0, STEPS.indexOf(at ?? '')))
          break
        default:
          expect([state, done]).toEqual(['unprocessed', []])
      }
      if (state in seen) seen[state as keyof typeof seen]++
    }
    expect(view.counts).toMatchObject({ ...seen, uncertain: 0, inFlight: 0 })
    expect(seen.applied * seen.failed * seen.unprocessed).toBeGreaterThan(0)
    expect(seen.failed).toBeLessThanOrEqual(2 * 2 * CONCURRENCY)
    await expectConserved(service, id)

    const rest = await replay(id)
    await untilStatus(service, rest.id, 'succeeded')
    for (const { key } of itemsOf('stopped', 60)) {
      expect(STEPS.map((name) => effect('order', key, name).applied)).toEqual([1, 1, 1])
    }
    expect(mostApplied('stopped')).toBe(1)
    await expectConserved(service, rest.id)
  })
})
