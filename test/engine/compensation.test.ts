/** Compensations from end to end: a real provider, real workers, and what became of the effects that were taken back. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { EFFECT_KEY_BYTES_MAX } from '../../src/domain/effect.ts'
import { formatId } from '../../src/domain/ids.ts'
import type { Json } from '../../src/domain/operation-type.ts'
import { buildCodeType, defineOperationType } from '../../src/operation-types/code.ts'
import type { OperationView } from '../../src/services/views.ts'
import { CALLBACK, SECRETS, signEvent } from '../support/callbacks.ts'
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
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const CONCURRENCY = 4
/** Long enough that a busy machine hands few calls back unsent; a call that was gives its effect a higher send. */
const CALM = { lease_seconds: 8 }
/** An item's `undo` says what the server does when its effect is taken back. */
const undo = {
  method: 'DELETE',
  url: '{env.EFFECTS_URL}/grants/{effect_key}',
  body: { mode: '{input.undo}', delay_ms: '{input.undo_ms}' },
  timeout_ms: 900,
}
const undoLookup = { ...grantLookup(100), url: '{env.EFFECTS_URL}/grants/{compensation_key}' }

const STEPS = ['reserve', 'pay', 'ship']
/** What a step does, the input's member of its name says. Its undoing tells the server which effect it was given. */
const orderType = () => {
  const { http, ...type } = grantType('order', {
    ...CALM,
    concurrency: CONCURRENCY,
    parallelism: 2,
    retry: { max_attempts: 1 },
  })
  const { request, outcome } = http as { request: Record<string, Json>; outcome: Json }
  const steps = STEPS.map((name) => ({ name, request: { ...request, body: { mode: `{input.${name}}` } }, outcome }))
  const headers = { 'Idempotency-Key': '{compensation_key} of {effect_key}' }
  return { ...type, http: { steps, compensate: { ...undo, headers } } }
}

let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
const file = writeTypeFile([
  grantType('grant', { ...CALM, concurrency: CONCURRENCY, parallelism: 4 }, { compensate: undo }),
  grantType('grant-asked', CALM, { lookup: grantLookup(100), compensate: undo }),
  grantType('grant-resent', CALM, { provider_idempotent_hours: 24, compensate: undo }),
  grantType('grant-undo-asked', CALM, { compensate: { ...undo, lookup: undoLookup } }),
  orderType(),
  grantType('grant-told', { ...CALM, effect_key: '{input.target}' }, { compensate: undo, callback: CALLBACK }),
])

beforeAll(async () => {
  effects = await startEffectServer()
  const env = { EFFECTS_URL: effects.url }
  service = await openTestService({ typeFiles: [file.file], env, secrets: { CALLBACK: SECRETS[0] } })
  const secrets = { OPLEDGER_SECRET_CALLBACK: SECRETS[0] }
  fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [file.file], env: { ...env, ...secrets } })
  await fleet.start()
})
afterAll(async () => {
  await fleet.stop()
  await service.close()
  await effects.close()
  file.remove()
})

const itemsOf = (prefix: string, count: number, input: Record<string, string | number> = {}) =>
  Array.from({ length: count }, (_, index) => ({ key: `${prefix}-${String(index).padStart(2, '0')}`, input }))

const apply = async (type: string, items: ReturnType<typeof itemsOf>): Promise<OperationView> => {
  const { id } = await service.submit(type, items)
  return untilStatus(service, id, 'succeeded')
}
const compensate = async (of: string): Promise<OperationView> => {
  const { operation } = await service.services.compensateOperation(principal, of, {
    preflightId: null,
    reason: 'granted by mistake',
    force: [],
    ifMatchVersion: null,
  })
  return operation
}
const preflight = (of: string) => service.services.preflightCompensation(principal, of, { scope: null })
const states = async (effectKeys: readonly string[]): Promise<string[]> => {
  const rows = await service.database.query(
    ({ sql }) => sql<{ effect_key: string; state: string }>`select effect_key, state from effects`,
  )
  const byKey = new Map(rows.map((row) => [row.effect_key, row.state]))
  return effectKeys.map((key) => byKey.get(key) ?? 'none')
}
/** The effect keys of the undoings of what is applied now. */
const undoings = async (effectKeys: readonly string[]): Promise<string[]> => {
  const rows = await service.database.query(
    ({ sql }) => sql<{ effect_key: string; send: number }>`select effect_key, send from effects`,
  )
  const byKey = new Map(rows.map((row) => [row.effect_key, row.send]))
  return effectKeys.map((key) => `compensate:${byKey.get(key)}:${key}`)
}
const sendOf = async (effectKey: string): Promise<number> => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ send: number }>`select send from effects where effect_key = ${effectKey}`,
  )
  return row?.send ?? 0
}
/** Undoings that the provider was asked for, in the order of their first request. */
const undone = (prefix: string): string[] =>
  Object.keys(effects.entries()).filter((key) => key.startsWith(`compensate:`) && key.includes(`:${prefix}-`))
const observations = async (id: string) =>
  (await service.ledger(id)).filter((entry) => entry.reasonCode === 'COMPENSATED')
const openCase = async (id: string) => {
  const found = (await service.cases(id)).find((one) => one.status === 'open')
  if (!found) throw new Error('there is no open case')
  return found
}
const resolve = (caseId: string, resolution: 'applied' | 'not_applied', retry = false) =>
  service.services.resolveCase(principal, caseId, {
    resolution,
    evidenceRef: 'asked them',
    effectRef: null,
    note: null,
    retry,
  })

describe('a compensation', { timeout: PROCESSES_MS }, () => {
  it('takes every effect back once, the last first; what is applied again has another undoing', async () => {
    const items = itemsOf('back', 50)
    const keys = items.map(({ key }) => `grant:${key}`)
    const original = await apply('grant', items)
    const expected = await undoings(keys)
    const { id } = await compensate(original.id)
    const view = await untilStatus(service, id, 'succeeded')
    expect(view).toMatchObject({ compensates: original.id, replayOf: null, counts: { total: 50, applied: 50 } })
    await expectConserved(service, id)

    const asked = undone('back')
    expect(asked.map((key) => effects.entry(key))).toEqual(
      Array(50).fill(expect.objectContaining({ requests: 1, applied: 1 })),
    )
    expect([...asked].sort()).toEqual([...expected].sort())
    // two windows are in the air at most: nothing is asked for further from its place in the reverse order
    const places = asked.map((key) => expected.indexOf(key))
    for (const [place, ord] of places.entries()) expect(Math.abs(49 - ord - place)).toBeLessThan(2 * CONCURRENCY)

    expect(new Set(await states(keys))).toEqual(new Set(['compensated']))
    const after = await service.view(original.id)
    expect(after).toMatchObject({ status: 'succeeded', counts: { applied: 50 }, compensatedBy: [id], replayedBy: [] })
    expect(after.version).toBe(original.version + 1)
    const observed = await observations(original.id)
    expect(observed).toHaveLength(50)
    expect(observed[0]).toMatchObject({ state: null, evidenceRef: formatId('op', id), source: 'worker' })
    await expectConserved(service, original.id)
    expect(await preflight(original.id)).toMatchObject({ blockedBy: ['nothing-to-compensate'], appliedTargets: 50 })
    expect(await preflight(id)).toMatchObject({ allowed: false, blockedBy: ['not-compensable'] })

    const again = await apply('grant', items)
    expect(again.counts).toMatchObject({ applied: 50, skipped: 0 })
    expect(new Set(await states(keys))).toEqual(new Set(['applied']))
    expect(await preflight(original.id)).toMatchObject({ blockedBy: ['nothing-to-compensate'] })
    const anew = await undoings(keys)
    expect(anew.filter((key) => expected.includes(key))).toEqual([])
    const second = await compensate(again.id)
    await untilStatus(service, second.id, 'succeeded')
    expect(new Set(await states(keys))).toEqual(new Set(['compensated']))
    expect(undone('back').slice(50).sort()).toEqual([...anew].sort())
    expect(Math.max(...undone('back').map((key) => effects.entry(key).applied))).toBe(1)
  })

  it('of items with steps asks once for each item, and then all steps are sent again', async () => {
    const items = itemsOf('steps', 12)
    const stepKeys = items.flatMap(({ key }) => STEPS.map((step) => `order:${key}/${step}`))
    const original = await apply('order', items)
    const { id } = await compensate(original.id)
    const view = await untilStatus(service, id, 'succeeded')
    expect(view).toMatchObject({ compensates: original.id, counts: { total: 12, applied: 12 } })
    const expected = await Promise.all(
      items.map(async ({ key }) => `compensate:${await sendOf(`order:${key}/ship`)}/ship:order:${key} of order:${key}`),
    )
    expect(undone('steps').sort()).toEqual([...expected].sort())
    expect(expected.map((key) => effects.entry(key))).toEqual(
      expected.map(() => expect.objectContaining({ requests: 1, applied: 1 })),
    )
    expect(new Set(await states(stepKeys))).toEqual(new Set(['compensated']))
    expect((await observations(original.id)).map(({ itemKey, step }) => `order:${itemKey}/${step}`).sort()).toEqual(
      [...stepKeys].sort(),
    )
    expect(await service.view(original.id)).toMatchObject({ counts: { applied: 12 }, compensatedBy: [id] })
    expect(await preflight(original.id)).toMatchObject({ blockedBy: ['nothing-to-compensate'] })
    for (const one of [original.id, id]) await expectConserved(service, one)

    const again = await apply('order', items)
    expect(again.counts).toMatchObject({ applied: 12, skipped: 0 })
    expect(stepKeys.map((key) => effects.entry(key).applied)).toEqual(stepKeys.map(() => 2))
    const second = await compensate(again.id)
    await untilStatus(service, second.id, 'succeeded')
    expect(new Set(await states(stepKeys))).toEqual(new Set(['compensated']))
    expect(undone('steps')).toHaveLength(24)
  })

  it('of items that a replay brought to their end takes back what the first run did of them, too', async () => {
    const { id: first } = await service.submit('order', [
      ...itemsOf('whole', 1),
      ...itemsOf('late', 1, { pay: 'busy_once' }),
    ])
    const view = await untilStatus(service, first, 'partially_succeeded')
    expect(view.counts).toMatchObject({ applied: 1, failed: 1 })
    const asked = await service.services.preflightReplay(principal, first, { scope: null })
    const { operation: rest } = await service.services.replayOperation(principal, first, {
      preflightId: asked.id,
      reason: 'again',
      force: [],
      ifMatchVersion: null,
    })
    await untilStatus(service, rest.id, 'succeeded')
    const late = STEPS.map((step) => `order:late-00/${step}`)
    const { id } = await compensate(rest.id)
    await untilStatus(service, id, 'succeeded')
    expect(await states(late)).toEqual(['compensated', 'compensated', 'compensated'])
    expect((await observations(rest.id)).map(({ step }) => step)).toEqual(STEPS)
    expect(await observations(first)).toEqual([])
    expect(await states(STEPS.map((step) => `order:whole-00/${step}`))).toEqual(['applied', 'applied', 'applied'])
    expect(await preflight(first)).toMatchObject({ compensationTargets: 1, appliedTargets: 1, allowed: true })
  })

  it('of items with steps that hangs leaves all of them applied until a person knows', async () => {
    const original = await apply('order', itemsOf('doubt', 1, { undo: 'apply_then_hang' }))
    const keys = STEPS.map((step) => `order:doubt-00/${step}`)
    const { id } = await compensate(original.id)
    await untilStatus(service, id, 'reconciliation_required')
    expect(new Set(await states(keys))).toEqual(new Set(['applied']))
    await resolve((await openCase(id)).id, 'applied')
    await untilStatus(service, id, 'succeeded')
    expect(new Set(await states(keys))).toEqual(new Set(['compensated']))
    expect((await observations(original.id)).map(({ step, source }) => [step, source])).toEqual(
      STEPS.map((step) => [step, 'operator']),
    )
  })

  it('stands in the history of each item, as what it is', async () => {
    const original = await apply('grant', itemsOf('told', 1))
    const { id } = await compensate(original.id)
    await untilStatus(service, id, 'succeeded')
    const page = { limit: 50, position: null }
    const { items } = await service.services.listItemHistory(principal, original.id, 'told-00', page)
    const told = items.map(({ kind, operationId, compensates, entry }) => ({
      kind,
      by: operationId === id ? 'compensation' : 'original',
      compensates,
      said: entry && (entry.state ?? entry.reasonCode),
    }))
    expect(told).toHaveLength(5)
    expect(told).toEqual(
      expect.arrayContaining([
        { kind: 'accepted', by: 'original', compensates: null, said: null },
        { kind: 'ledger_entry', by: 'original', compensates: null, said: 'applied' },
        { kind: 'accepted', by: 'compensation', compensates: original.id, said: null },
        { kind: 'ledger_entry', by: 'compensation', compensates: original.id, said: 'applied' },
        { kind: 'ledger_entry', by: 'original', compensates: null, said: 'COMPENSATED' },
      ]),
    )
  })

  it('of an effect that is gone already is skipped, and the effect counts as compensated', async () => {
    const original = await apply('grant', itemsOf('gone', 1, { undo: 'gone' }))
    const { id } = await compensate(original.id)
    const view = await untilStatus(service, id, 'succeeded')
    expect(view.counts).toMatchObject({ skipped: 1 })
    expect((await service.items(id)).get('gone-00')).toMatchObject({ state: 'skipped', reasonCode: 'ALREADY_GONE' })
    expect(await states(['grant:gone-00'])).toEqual(['compensated'])
    expect(await observations(original.id)).toHaveLength(1)
  })

  it('that was refused leaves the effect applied, and another one can take it back', async () => {
    const original = await apply('grant', [
      ...itemsOf('good', 2),
      ...itemsOf('refused', 1, { undo: 'reject' }),
      ...itemsOf('clash', 1, { undo: 'conflict' }),
    ])
    const [good = '', refused = ''] = await undoings(['grant:good-00', 'grant:refused-00'])
    const { id } = await compensate(original.id)
    const view = await untilStatus(service, id, 'partially_succeeded')
    expect(view).toMatchObject({
      counts: { applied: 2, failed: 2 },
      failures: { validation_rejected: 1, conflict: 1 },
    })
    expect(await states(['grant:good-00', 'grant:refused-00', 'grant:clash-00'])).toEqual([
      'compensated',
      'applied',
      'applied',
    ])
    expect(await preflight(original.id)).toMatchObject({ allowed: true, compensationTargets: 2, appliedTargets: 4 })
    const second = await compensate(original.id)
    await untilStatus(service, second.id, 'failed')
    // the same undoing of the same effect, sent a second time because the first was certainly not done
    expect(await states([refused])).toEqual(['absent'])
    expect([refused, good].map((key) => effects.entry(key).requests)).toEqual([2, 1])
    expect((await service.view(original.id)).compensatedBy).toEqual([id, second.id])
  })

  it('that fails for a moment is tried again under the same key', async () => {
    const original = await apply('grant', itemsOf('moment', 1, { undo: 'busy_once' }))
    const [key = ''] = await undoings(['grant:moment-00'])
    const { id } = await compensate(original.id)
    // 503 promises nothing here: it is uncertain, and for a person
    await untilStatus(service, id, 'reconciliation_required')
    await resolve((await openCase(id)).id, 'not_applied', true)
    await untilStatus(service, id, 'succeeded')
    expect(effects.entry(key)).toMatchObject({ requests: 2, applied: 1 })
    expect(await states([key, 'grant:moment-00'])).toEqual(['applied', 'compensated'])
  })

  it.each([
    ['grant', 'hang'],
    ['grant-asked', 'asked'],
    ['grant-resent', 'resent'],
  ])(
    '%s that hangs is uncertain and for a person: no lookup and no promise of the effect itself speaks of it',
    async (type, name) => {
      const original = await apply(type, itemsOf(name, 1, { undo: 'apply_then_hang' }))
      const [key = ''] = await undoings([`${type}:${name}-00`])
      const { id } = await compensate(original.id)
      const view = await untilStatus(service, id, 'reconciliation_required')
      expect(view.counts).toMatchObject({ uncertain: 1 })
      const found = await openCase(id)
      expect(found).toMatchObject({
        effectKey: key,
        cause: 'send_outcome_unknown',
        lookups: { count: 0, nextAt: null },
      })
      await expect(service.services.lookupCase(principal, found.id)).rejects.toThrow('lookup-not-available')
      expect(await states([`${type}:${name}-00`])).toEqual(['applied'])
      // while it is not known, nothing else takes it back
      await expect(compensate(original.id)).rejects.toThrow('compensation-in-progress')
      await resolve(found.id, 'applied')
      await untilStatus(service, id, 'succeeded')
      expect(await states([`${type}:${name}-00`])).toEqual(['compensated'])
      expect(await observations(original.id)).toMatchObject([{ source: 'operator', actor: 'tester' }])
      expect(effects.entry(key).requests).toBe(1)
      await expectConserved(service, id)
    },
  )

  it.each([
    ['a short one', 'told'],
    ['one as long as it may be', 'l'.repeat(EFFECT_KEY_BYTES_MAX)],
  ])('that hangs is closed by a callback that names its key: of %s', async (_name, target) => {
    const original = await apply('grant-told', itemsOf('told', 1, { target, undo: 'apply_then_hang' }))
    const { id } = await compensate(original.id)
    await untilStatus(service, id, 'reconciliation_required')
    const [key = ''] = await undoings([target])
    expect(effects.entry(key)).toMatchObject({ requests: 1, applied: 1 })
    const { headers, body } = signEvent(`evt_${target.length}`, { data: { reference: key, status: 'settled' } })
    const received = await service.services.receiveCallback({
      type: 'grant-told',
      headers,
      body: Buffer.from(body),
      tenantId: null,
    })
    expect(received).toMatchObject({ outcome: 'applied', operationId: id, itemKey: 'told-00' })
    await untilStatus(service, id, 'succeeded')
    expect(await states([target])).toEqual(['compensated'])
    expect(await observations(original.id)).toMatchObject([{ source: 'callback' }])
    await expectConserved(service, id)
  })

  it('that hangs is closed by a lookup of its own, which asks about the undoing', async () => {
    const original = await apply('grant-undo-asked', itemsOf('own', 1, { undo: 'apply_then_hang' }))
    const { id } = await compensate(original.id)
    await untilStatus(service, id, 'succeeded')
    expect((await service.cases(id))[0]?.resolution).toMatchObject({ resolution: 'applied', source: 'lookup' })
    expect(await states(['grant-undo-asked:own-00'])).toEqual(['compensated'])
    expect(await observations(original.id)).toMatchObject([{ source: 'lookup' }])
  })

  it('is paused by a stop condition while anything of it is uncertain, and goes on when that is explained', async () => {
    const original = await apply('grant', [
      ...itemsOf('calm', 40, { undo_ms: 300 }),
      ...itemsOf('storm', 1, { undo: 'apply_then_hang' }),
    ])
    const { id } = await compensate(original.id)
    const paused = await untilStatus(service, id, 'paused')
    expect(paused.error).toMatchObject({ code: 'stop-condition' })
    expect(paused.counts.unprocessed).toBeGreaterThan(0)
    await resolve((await openCase(id)).id, 'applied')
    await service.services.resumeOperation(principal, id, { reason: null, ifMatchVersion: null })
    await untilStatus(service, id, 'succeeded')
    expect(Math.max(...undone('calm').map((key) => effects.entry(key).requests))).toBe(1)
  })

  it('whose worker is killed undoes nothing twice: what was in the air is for a person', async () => {
    const items = itemsOf('killed', 40, { undo_ms: 200 })
    const original = await apply('grant', items)
    await fleet.stop()
    const env = { EFFECTS_URL: effects.url, OPLEDGER_SECRET_CALLBACK: SECRETS[0] }
    fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [file.file], env })
    const first = await fleet.start()
    const { id } = await compensate(original.id)
    await eventually('it works', async () => {
      const { counts } = await service.view(id)
      return counts.applied >= 4 && counts.inFlight >= CONCURRENCY
    })
    first.kill('SIGKILL')
    await waitForExit(first.child)
    await fleet.start()
    const paused = await untilStatus(service, id, ['paused', 'reconciliation_required'])
    expect(paused.counts.uncertain).toBeGreaterThan(0)
    const compensated = async () =>
      (await states(items.map(({ key }) => `grant:${key}`))).filter((state) => state === 'compensated').length
    expect(await compensated()).toBe(paused.counts.applied)
    for (const found of await service.cases(id)) {
      expect(found.cause).toBe('worker_lost')
      await resolve(found.id, effects.entry(found.effectKey).applied > 0 ? 'applied' : 'not_applied', true)
    }
    if ((await service.view(id)).status === 'paused') {
      await service.services.resumeOperation(principal, id, { reason: null, ifMatchVersion: null })
    }
    await untilStatus(service, id, 'succeeded')
    expect(undone('killed').map((key) => effects.entry(key).applied)).toEqual(Array(40).fill(1))
    expect(await compensated()).toBe(40)
    expect(await observations(original.id)).toHaveLength(40)
    await expectConserved(service, id)
  })
})

describe('a compensation of a transactional type', { timeout: PROCESSES_MS }, () => {
  it('takes rows back in the transaction that says so; what cannot be taken back stays applied', async () => {
    const place = buildCodeType(
      defineOperationType({
        name: 'place',
        version: 1,
        effect: 'transactional',
        effect_key: 'place:{item.key}',
        input: z.object({}),
        batch: { max_items: 10 },
        parallelism: 1,
        retry: { max_attempts: 1 },
        runBatch: async (tx, items) => {
          for (const { key } of items) await tx`insert into placed (key, by) values (${key}, 'run')`
          return undefined
        },
        compensateBatch: async (tx, items) => {
          for (const { key, effectKey, compensationKey } of items) {
            await tx`insert into undone (key, effect_key, compensation_key) values (${key}, ${effectKey}, ${compensationKey})`
            await tx`delete from placed where key = ${key}`
          }
          return undefined
        },
      }),
      { codeVersion: 'c1' },
    )
    const own = await openTestService({ types: [place] })
    const engine = await startTestEngine({ url: own.url, types: [place] })
    try {
      await own.database.query(({ sql }) => sql`create table placed (key text primary key, by text)`)
      await own.database.query(
        ({ sql }) => sql`
          create table undone (seq serial, key text check (key <> 'p-03'), effect_key text, compensation_key text)`,
      )
      const items = itemsOf('p', 25)
      const original = await own.submit('place', items)
      await untilStatus(own, original.id, 'succeeded')
      const { operation } = await own.services.compensateOperation(principal, original.id, {
        preflightId: null,
        reason: 'wrong file',
        force: [],
        ifMatchVersion: null,
      })
      const view = await untilStatus(own, operation.id, 'partially_succeeded')
      expect(view).toMatchObject({ counts: { applied: 24, failed: 1 }, failures: { conflict: 1 } })
      const left = await own.database.query(({ sql }) => sql`select key from placed`)
      expect(left).toEqual([{ key: 'p-03' }])
      const order = await own.database.query(
        ({ sql }) => sql<{ key: string; effect_key: string; compensation_key: string }>`
          select key, effect_key, compensation_key from undone order by seq`,
      )
      expect(order.map((row) => row.key)).toEqual(
        items
          .map(({ key }) => key)
          .filter((key) => key !== 'p-03')
          .reverse(),
      )
      expect(order[0]).toMatchObject({ effect_key: 'place:p-24', compensation_key: 'compensate:1:place:p-24' })
      const registry = await own.database.query(
        ({ sql }) => sql<{ state: string; n: number }>`
          select state, count(*)::int as n from effects where operation_id = ${original.id}::uuid group by state`,
      )
      expect(registry).toEqual(
        expect.arrayContaining([
          { state: 'compensated', n: 24 },
          { state: 'applied', n: 1 },
        ]),
      )
      const observed = (await own.ledger(original.id)).filter((entry) => entry.reasonCode === 'COMPENSATED')
      expect(observed).toHaveLength(24)
      expect(observed[0]).toMatchObject({ itemKey: 'p-00', state: null, source: 'worker' })
      await expectConserved(own, original.id)
      await expectConserved(own, operation.id)
      // the keys are free again, and a second run applies what was taken back
      const again = await own.submit('place', items)
      expect((await untilStatus(own, again.id, 'succeeded')).counts).toMatchObject({ applied: 24, skipped: 1 })
    } finally {
      await engine.drain()
      await own.close()
    }
  })

  it('and another run over the same targets wait for each other and never in a circle', async () => {
    const count = buildCodeType(
      defineOperationType({
        name: 'count',
        version: 1,
        effect: 'transactional',
        effect_key: 'count:{item.key}',
        input: z.object({}),
        batch: { max_items: 20 },
        parallelism: 1,
        // row by row, in the order of the items: forwards in a run, backwards in a compensation
        runBatch: async (tx, items) => {
          for (const { key } of items) await tx`update counted set n = n + 1 where key = ${key}`
          return undefined
        },
        compensateBatch: async (tx, items) => {
          for (const { key } of items) await tx`update counted set n = n - 1 where key = ${key}`
          return undefined
        },
      }),
      { codeVersion: 'c1' },
    )
    const own = await openTestService({ types: [count] })
    const engine = await startTestEngine({ url: own.url, types: [count] })
    try {
      const items = itemsOf('n', 100)
      await own.database.query(({ sql }) => sql`create table counted (key text primary key, n int not null)`)
      for (const { key } of items) await own.database.query(({ sql }) => sql`insert into counted values (${key}, 0)`)
      for (let round = 0; round < 5; round++) {
        const first = await own.submit('count', items)
        await untilStatus(own, first.id, 'succeeded')
        const [rerun, undoing] = await Promise.all([
          own.submit('count', items),
          own.services.compensateOperation(principal, first.id, {
            preflightId: null,
            reason: 'a round',
            force: [],
            ifMatchVersion: null,
          }),
        ])
        await untilStatus(own, undoing.operation.id, 'succeeded')
        const { counts } = await untilStatus(own, rerun.id, 'succeeded')
        expect(counts.applied + counts.skipped).toBe(100)
        const [sum] = await own.database.query(
          ({ sql }) => sql`select sum(n)::int as n, max(n) as most, min(n) as least from counted`,
        )
        expect(sum).toEqual({
          n: counts.applied,
          most: counts.applied > 0 ? 1 : 0,
          least: counts.applied < 100 ? 0 : 1,
        })
        for (const { id } of [first, rerun, undoing.operation]) await expectConserved(own, id)
        // the next round starts from nothing
        if (counts.applied === 0) continue
        const rest = await own.services.compensateOperation(principal, rerun.id, {
          preflightId: null,
          reason: 'the rest',
          force: [],
          ifMatchVersion: null,
        })
        await untilStatus(own, rest.operation.id, 'succeeded')
      }
      expect(engine.logged()).toEqual([])
    } finally {
      await engine.drain()
      await own.close()
    }
  })
})
