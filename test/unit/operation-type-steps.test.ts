/** Types whose items have steps: what is checked at the start, and which request a step makes. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { Executor, OperationType, SendCall } from '../../src/domain/operation-type.ts'
import { buildCodeType, type CodeDefinition, defineOperationType } from '../../src/operation-types/code.ts'
import { loadOperationTypes, type TypeRegistry } from '../../src/operation-types/registry.ts'

type Entry = Record<string, unknown>
type External = Extract<Executor, { kind: 'external' }>

let directory: string
let provider: http.Server
let url: string
const seen: string[] = []
const open: TypeRegistry[] = []
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'opledger-steps-'))
  provider = http.createServer((request, response) => {
    seen.push(`${request.method} ${request.url} ${request.headers['idempotency-key']}`)
    response.writeHead(request.url?.startsWith('/ship') ? 409 : 200).end()
  })
  await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`
})
afterAll(async () => {
  for (const registry of open) await registry.close()
  await new Promise((resolve) => {
    provider.close(resolve)
    provider.closeAllConnections()
  })
  await rm(directory, { recursive: true, force: true })
})

const outcome = [
  { status: [200], state: 'applied' },
  { status: [409], state: 'failed', class: 'conflict' },
]
const step = (name: string, change: Entry = {}): Entry => ({
  name,
  request: { url: `{env.SHOP}/${name}/{item.key}`, headers: { 'Idempotency-Key': '{effect_key}' } },
  outcome,
  ...change,
})
const entry = (http: Entry, change: Entry = {}): Entry => ({
  name: 'order',
  version: 1,
  effect: 'external',
  effect_key: 'order:{item.key}',
  ...change,
  http,
})

const load = async (definition: Entry): Promise<OperationType> => {
  const file = path.join(directory, 'types.json')
  await writeFile(file, JSON.stringify({ types: [definition] }))
  const registry = await loadOperationTypes({ paths: [file], env: { SHOP: url }, secrets: () => undefined })
  open.push(registry)
  const type = registry.get('order')
  if (type === undefined) throw new Error('no type was loaded')
  return type
}
const executorOf = ({ executor }: OperationType): External => {
  if (executor.kind !== 'external') throw new Error('not external')
  return executor
}
const call = (name: string): SendCall => ({
  effectKey: `order:7/${name}`,
  step: name,
  itemKey: '7',
  input: {},
  operationId: 'op_1',
  type: 'order',
  attempt: 1,
  traceparent: null,
  mayStart: () => true,
})
const item = { key: '7', input: {}, rootOperationId: 'op_0' }

describe('steps in a type file', () => {
  const lookup = { url: '{env.SHOP}/found/{effect_key}', after_ms: 7, outcome: [{ status: [200], state: 'applied' }] }

  it('are in order; the call timeout is that of the slowest, and each has its own lookup or none', async () => {
    const type = await load(
      entry({
        steps: [
          step('reserve', { request: { url: '{env.SHOP}/reserve', timeout_ms: 100 } }),
          step('pay', { request: { url: '{env.SHOP}/pay', timeout_ms: 9_000 }, lookup }),
          step('ship', { irreversible: true, lookup: { ...lookup, after_ms: 11 } }),
        ],
      }),
    )
    expect(type).toMatchObject({ steps: ['reserve', 'pay', 'ship'], endsIrreversibly: true })
    const { callTimeoutMs, lookup: none, stepLookups } = executorOf(type)
    expect([callTimeoutMs, none, [...(stepLookups?.keys() ?? [])]]).toEqual([9_000, null, ['pay', 'ship']])
    expect(stepLookups?.get('pay')).toMatchObject({ afterMs: 7, timeoutMs: 9_000 })
    expect(stepLookups?.get('ship')).toMatchObject({ afterMs: 11, timeoutMs: 5_000 })
  })

  it('make their own request with their own key, and read their own answer', async () => {
    const executor = executorOf(await load(entry({ steps: [step('reserve'), step('ship', { lookup })] })))
    seen.length = 0
    expect((await executor.send(call('reserve'))).outcome).toEqual({ state: 'applied' })
    expect((await executor.send(call('ship'))).outcome).toMatchObject({ state: 'failed', failureClass: 'conflict' })
    expect(await executor.stepLookups?.get('ship')?.find(call('ship'))).toMatchObject({ state: 'applied' })
    expect(seen).toEqual([
      'POST /reserve/7 order:7/reserve',
      'POST /ship/7 order:7/ship',
      'GET /found/order%3A7%2Fship undefined',
    ])
    await expect(executor.send(call('gone'))).rejects.toThrow('a call of the step "gone", which order does not have')
  })

  it('have no say where there are none', async () => {
    const { request } = step('reserve')
    const type = await load(entry({ request, outcome, lookup }))
    expect(type).toMatchObject({ steps: [], endsIrreversibly: false, executor: { lookup: { afterMs: 7 } } })
  })

  it('leave room for their names in the effect key, and name what their URLs lack', async () => {
    const type = await load(
      entry(
        { steps: [step('a'), step('a-longer-name', { request: { url: '{env.SHOP}/{input.place}/{effect_key}' } })] },
        { effect_key: '{input.key}' },
      ),
    )
    const keyOf = (key: string, place = 'p') => type.effectKey({ ...item, input: { key, place } })
    expect(keyOf('x'.repeat(986))).toEqual({ key: 'x'.repeat(986) })
    expect(keyOf('x'.repeat(987))).toMatchObject({
      issue: { detail: 'makes an effect key of 987 bytes; at most 986 are allowed' },
    })
    expect(keyOf('x', '')).toMatchObject({ issue: { pointer: '/place' } })
    expect(type.validateInput({ key: 'x' })).toEqual([{ pointer: '/place', detail: expect.stringContaining('URL') }])
  })

  const two = [step('pay'), step('ship')]
  const many = Array.from({ length: 9 }, (_, index) => step(`s${index}`))
  it.each<[string, Entry, string]>([
    ['neither form', {}, 'http.request: is required, unless there are steps'],
    ['no outcome', { request: step('a').request }, 'http.outcome: is required, unless there are steps'],
    ['a request beside them', { steps: two, request: step('a').request }, 'http.request: must not stand beside steps'],
    ['an outcome beside them', { steps: two, outcome }, 'http.outcome: must not stand beside steps'],
    ['a lookup beside them', { steps: two, lookup }, 'http.lookup: must not stand beside steps'],
    ['none', { steps: [] }, 'http.steps: Too small'],
    ['too many', { steps: many }, 'http.steps: Too big'],
    ['no name', { steps: [{ ...step('a'), name: undefined }] }, 'http.steps.0.name: '],
    ['a bad name', { steps: [step('Pay')] }, 'http.steps.0.name: must be lower-case, such as reserve'],
    ['a long name', { steps: [step('a'.repeat(33))] }, 'http.steps.0.name: must be lower-case'],
    ['a name twice', { steps: [...two, step('pay')] }, 'http.steps.2.name: "pay" is the name of an earlier step'],
    [
      'irreversible, and not the last',
      { steps: [step('pay', { irreversible: true }), step('ship')] },
      'http.steps.0.irreversible: only the last step may be irreversible, and "ship" comes after "pay"',
    ],
    [
      'irreversible, and compensated',
      { steps: [step('pay'), step('ship', { irreversible: true })], compensate: { url: '{env.SHOP}/undo' } },
      'http.steps.1.irreversible: must not stand beside compensate',
    ],
    ['no request of one', { steps: [step('pay'), { name: 'ship', outcome }] }, 'http.steps.1.request: '],
    ['no outcome of one', { steps: [step('pay', { outcome: [] })] }, 'http.steps.0.outcome: Too small'],
    [
      'an unknown member of one',
      { steps: [step('pay', { on_absent: 'retry' })] },
      'http.steps.0.on_absent: unknown member',
    ],
    [
      'a bad URL of one',
      { steps: [step('pay'), step('ship', { request: { url: '{env.SHOP}/{x}' } })] },
      'http.steps.1.request.url: unknown placeholder {x}',
    ],
    [
      'a bad lookup of one',
      { steps: [step('pay', { lookup: { ...lookup, url: '/relative' } })] },
      'http.steps.0.lookup.url: must start with a fixed',
    ],
  ])('stop the start: %s', async (_name, http, message) => {
    const error = await load(entry(http)).then(
      () => new Error('was not refused'),
      (thrown: Error) => thrown,
    )
    expect(error.message).toContain(`types.json: type "order": ${message}`)
    expect(error.message).not.toContain('\n')
  })

  it('count for the lease as their slowest call does', async () => {
    const slow = step('pay', { request: { url: '{env.SHOP}/pay', timeout_ms: 29_500 } })
    await expect(load(entry({ steps: [step('reserve'), slow] }))).rejects.toThrow(
      'lease_seconds: must be more than the call timeout plus a margin (29500 ms + 1000 ms)',
    )
  })
})

describe('steps of a code type', () => {
  const input = z.object({ to: z.string() })
  type Definition = CodeDefinition<typeof input>
  const definition: Definition = {
    name: 'order',
    version: 1,
    effect: 'external',
    effect_key: 'order:{item.key}',
    input,
    timeout_ms: 40,
    steps: [
      { name: 'pay', send: async ({ effectKey }) => ({ state: 'applied', effectRef: effectKey }) },
      {
        name: 'ship',
        irreversible: true,
        send: () => new Promise(() => {}),
        lookup: { after_ms: 3, find: async ({ step: asked }) => ({ state: 'absent', evidenceRef: asked }) },
      },
    ],
  }
  const build = (change: object = {}): OperationType =>
    buildCodeType(defineOperationType({ ...definition, ...change } as Definition), { codeVersion: 'v1' })

  it('are called by their name, under one timeout', async () => {
    const type = build()
    expect(type).toMatchObject({ steps: ['pay', 'ship'], endsIrreversibly: true })
    const executor = executorOf(type)
    const sent = (name: string) => executor.send({ ...call(name), input: { to: 'a' } })
    expect((await sent('pay')).outcome).toEqual({ state: 'applied', effectRef: 'order:7/pay' })
    expect((await sent('ship')).outcome).toMatchObject({ state: 'uncertain', reasonCode: 'TIMEOUT' })
    expect([...(executor.stepLookups?.keys() ?? [])]).toEqual(['ship'])
    const found = await executor.stepLookups?.get('ship')?.find({ ...call('ship'), input: { to: 'a' } })
    expect(found).toEqual({ state: 'absent', evidenceRef: 'ship' })
  })

  it('leave room for their names in the effect key', () => {
    const made = build({ effect_key: () => 'x'.repeat(996) }).effectKey({ ...item, input: { to: 'a' } })
    expect(made).toMatchObject({ issue: { detail: expect.stringContaining('at most 995') } })
  })

  const send = async () => ({ state: 'applied' }) as const
  it.each<[string, object, string]>([
    ['send beside them', { send }, 'send: must not stand beside steps'],
    ['lookup beside them', { lookup: { find: send } }, 'lookup: must not stand beside steps'],
    ['none', { steps: [] }, 'steps: Too small'],
    ['no send of one', { steps: [{ name: 'pay' }] }, 'steps.0.send: must be a function'],
    ['a bad name', { steps: [{ name: 'a b', send }] }, 'steps.0.name: must be lower-case'],
    ['a name twice', { steps: ['a', 'a'].map((name) => ({ name, send })) }, 'steps.1.name: "a" is the name'],
    [
      'irreversible, and not the last',
      {
        steps: [
          { name: 'a', irreversible: true, send },
          { name: 'b', send },
        ],
      },
      'steps.0.irreversible: only the last step',
    ],
    ['irreversible, and compensated', { compensate: send }, 'steps.1.irreversible: must not stand beside compensate'],
    ['neither form', { steps: undefined }, 'send: is required for effect external'],
    [
      'of a batch',
      { effect: 'transactional', timeout_ms: undefined, runBatch: send },
      'steps: has no meaning for effect transactional',
    ],
  ])('are refused: %s', (_name, change, message) => {
    expect(() => build(change)).toThrow(message)
  })
})
