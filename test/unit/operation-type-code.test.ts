import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  type BatchRun,
  cancelGuarantee,
  type EffectCall,
  type Executor,
  type OperationType,
  type SendCall,
} from '../../src/domain/operation-type.ts'
import { buildCodeType, type CodeDefinition, defineOperationType } from '../../src/operation-types/code.ts'
import { NothingSent } from '../../src/operation-types/handlers.ts'
import { loadOperationTypes } from '../../src/operation-types/registry.ts'

const input = z.object({ to: z.string().min(1), times: z.number().default(1) })
type Input = typeof input
const external: Extract<CodeDefinition<Input>, { effect: 'external' }> = {
  name: 'send',
  version: 1,
  effect: 'external',
  input,
  send: async () => ({ state: 'applied' }),
}
const transactional: Extract<CodeDefinition<Input>, { effect: 'transactional' }> = {
  name: 'import',
  version: 1,
  effect: 'transactional',
  input,
  runBatch: async () => undefined,
}
const build = (definition: CodeDefinition<Input>): OperationType =>
  buildCodeType(defineOperationType(definition), { codeVersion: 'v1' })

type External = Extract<Executor, { kind: 'external' }>
const executorOf = (definition: CodeDefinition<Input>): External => {
  const { executor } = build(definition)
  if (executor.kind !== 'external') throw new Error('not external')
  return executor
}
const call: SendCall = {
  effectKey: 'key',
  step: '',
  itemKey: 'item',
  input: { to: 'a' },
  operationId: 'op_1',
  type: 'send',
  attempt: 1,
  traceparent: null,
  mayStart: () => true,
}

describe('defineOperationType', () => {
  it('has the defaults, the input schema and the issues of a type file', () => {
    const type = build(external)
    expect(type).toMatchObject({ leaseMs: 30_000, idempotencyKey: 'required', codeVersion: 'v1', onAbsent: 'case' })
    expect(type.inputSchema).toMatchObject({ type: 'object', required: ['to'], properties: { to: { type: 'string' } } })
    expect(type.validateInput({ to: 'a' })).toEqual([])
    expect(type.validateInput({ to: '' })).toEqual([{ pointer: '/to', detail: expect.stringContaining('Too small') }])
    expect(build({ ...external, code_version: 'v9' }).codeVersion).toBe('v9')
    expect(build(transactional)).toMatchObject({ idempotencyKey: 'optional', executor: { kind: 'transactional' } })
  })

  it.each<[string, object, string]>([
    ['no send', { ...external, send: undefined }, 'send: is required for effect external'],
    ['no runBatch', { ...transactional, runBatch: undefined }, 'runBatch: is required for effect transactional'],
    ['both', { ...external, runBatch: async () => undefined }, 'runBatch: has no meaning for effect external'],
    ['lookup of a batch', { ...transactional, lookup: { find: async () => {} } }, 'lookup: has no meaning'],
    ['artifact', { ...external, effect: 'artifact', send: undefined }, 'plan: is required for effect artifact'],
    ['unknown member', { ...external, sned: 1 }, 'sned: unknown member'],
    ['no function', { ...external, send: 'x' }, 'send: must be a function'],
    ['no schema', { ...external, input: { type: 'object' } }, 'input: must be a zod 4 schema'],
    ['no JSON schema', { ...external, input: z.lazy(() => null as never) }, 'input: has no JSON Schema'],
    ['touches', { ...external, touches: ['money'] }, 'no_compensation: required because touches names money'],
    ['batch over the lease', { ...transactional, lease_seconds: 2 }, 'lease_seconds: must be more than batch.max_ms'],
    ['effect key', { ...external, effect_key: '{env.HOME}:{item.key}' }, 'effect_key: {env.HOME}: the environment'],
  ])('refuses: %s', (_name, definition, message) => {
    expect(() => build(definition as CodeDefinition<Input>)).toThrow(message)
  })

  it('makes effect keys by a template or by code', () => {
    const item = { key: 'k', input: { to: 'a' }, rootOperationId: 'op_0' }
    expect(build(external).effectKey(item)).toEqual({ key: 'send:op_0:k' })
    expect(build({ ...external, effect_key: '{input.to}-{item.key}' }).effectKey(item)).toEqual({ key: 'a-k' })
    const coded = build({ ...external, effect_key: ({ key, input }) => `${input.to}:${input.times}:${key}` })
    expect(coded.effectKey(item)).toEqual({ key: 'a:1:k' })
    expect(coded.effectKey({ ...item, input: {} })).toMatchObject({ issue: { pointer: '' } })
    expect(build({ ...external, effect_key: () => 'x'.repeat(1_001) }).effectKey(item)).toMatchObject({
      issue: { detail: expect.stringContaining('1001 bytes') },
    })
  })
})

describe('send of a code type', () => {
  const sent = (send: typeof external.send, timeout_ms = 5_000) =>
    executorOf({ ...external, send, timeout_ms }).send(call)

  it('is given the parsed input and may answer an outcome or a report', async () => {
    const outcome = await sent(async ({ input, effectKey }) => ({
      state: 'applied',
      effectRef: `${effectKey}${input.times}`,
    }))
    expect(outcome).toEqual({ outcome: { state: 'applied', effectRef: 'key1' }, downstreamError: false })
    const report = {
      outcome: { state: 'failed', failureClass: 'transient', reasonCode: 'BUSY' },
      downstreamError: true,
    } as const
    expect(await sent(async () => report)).toEqual(report)
  })

  it.each<[string, typeof external.send]>([
    ['an error', async () => Promise.reject(new Error('bad \0 text'))],
    [
      'a synchronous error',
      () => {
        throw new Error('bad \0 text')
      },
    ],
    ['a string', async () => Promise.reject('bad \0 text')],
  ])('case 65: %s after it began is uncertain, with a clean message', async (_name, send) => {
    expect(await sent(send)).toEqual({
      outcome: { state: 'uncertain', reasonCode: 'HANDLER_ERROR', message: 'bad \ufffd text' },
      downstreamError: false,
    })
  })

  it('takes NothingSent at its word', async () => {
    const nothing = new NothingSent('no route', { reasonCode: 'NO_ROUTE' })
    expect(await sent(async () => Promise.reject(nothing))).toMatchObject({
      outcome: { state: 'failed', failureClass: 'transient', reasonCode: 'NO_ROUTE', message: 'no route' },
    })
    const foreign = Object.assign(new Error('other copy'), { name: 'NothingSent' })
    expect(await sent(async () => Promise.reject(foreign))).toMatchObject({ outcome: { reasonCode: 'NOTHING_SENT' } })
  })

  it('that waits may ask before it writes; told no, it is unsent if it says that nothing was sent', async () => {
    const sentWhile = (mayStart: () => boolean, send: typeof external.send) =>
      executorOf({ ...external, send }).send({ ...call, mayStart })
    const nothing = () => Promise.reject(new NothingSent('stopped'))
    const asks: typeof external.send = (_call, { mayStart }) =>
      mayStart() ? Promise.resolve({ state: 'applied' }) : nothing()
    expect((await sentWhile(() => true, asks)).outcome).toEqual({ state: 'applied' })
    expect(await sentWhile(() => false, asks)).toEqual({ outcome: { state: 'unsent' }, downstreamError: false })
    // a handler that did not ask has failed for a reason of its own: charged, or it would be tried for ever
    expect((await sentWhile(() => false, nothing)).outcome).toMatchObject({ state: 'failed' })
    // what was told no once is not told yes later
    const answers = [false, true]
    const again: typeof external.send = async (_call, { mayStart }) =>
      mayStart() || mayStart() ? { state: 'applied' } : nothing()
    expect((await sentWhile(() => answers.shift() ?? true, again)).outcome).toEqual({ state: 'unsent' })
    // told no, and sent all the same: nobody knows
    const rash: typeof external.send = async (_call, { mayStart }) => {
      mayStart()
      throw new Error('broken off')
    }
    expect((await sentWhile(() => false, rash)).outcome).toMatchObject({ state: 'uncertain' })
  })

  it.each([[undefined], [{ state: 'done' }], [{ state: 'failed', failureClass: 'ambiguous_effect' }], ['ok']])(
    'calls %j no outcome: uncertain',
    async (answer) => {
      expect(await sent(async () => answer as never)).toMatchObject({
        outcome: { state: 'uncertain', reasonCode: 'HANDLER_ERROR' },
      })
    },
  )

  it('case 31: is uncertain when it ignores its deadline, and is told of it', async () => {
    let signal: AbortSignal | undefined
    const report = await sent((_call, context) => {
      signal = context.signal
      return new Promise(() => {})
    }, 20)
    expect(report).toMatchObject({ outcome: { state: 'uncertain', reasonCode: 'TIMEOUT' }, downstreamError: true })
    expect(signal?.aborted).toBe(true)
  })

  it('rejects an input that a newer version no longer takes, and sends nothing', async () => {
    const report = await executorOf(external).send({ ...call, input: {} })
    expect(report.outcome).toMatchObject({ state: 'failed', failureClass: 'validation_rejected' })
  })
})

describe('lookup of a code type', () => {
  const found = async (find: () => Promise<unknown>, input: EffectCall['input'] = { to: 'a' }) => {
    const lookup = { after_ms: 5, timeout_ms: 20, find: find as never }
    const executor = executorOf({ ...external, lookup })
    expect(executor.lookup).toMatchObject({ afterMs: 5, timeoutMs: 20 })
    return executor.lookup?.find({ ...call, input })
  }

  it.each<[() => Promise<unknown>, object]>([
    [async () => ({ state: 'absent', evidenceRef: 'e' }), { state: 'absent', evidenceRef: 'e' }],
    [async () => ({ state: 'absent' }), { state: 'unknown', reasonCode: 'LOOKUP_UNCLASSIFIED' }],
    [async () => Promise.reject(new Error('down')), { state: 'unknown', reasonCode: 'LOOKUP_DOWN' }],
    [() => new Promise(() => {}), { state: 'unknown', reasonCode: 'LOOKUP_DOWN' }],
  ])('case %#: says only what it knows', async (find, outcome) => {
    expect(await found(find)).toEqual(outcome)
  })

  it('knows nothing of an input it cannot read', async () => {
    expect(await found(async () => ({}), 5)).toEqual({ state: 'unknown', reasonCode: 'INVALID_INPUT' })
  })
})

describe('runBatch of a code type', () => {
  const items = ['a', 'b'].map((key) => ({ key, input: { to: key }, effectKey: key, attempt: 1 }))
  const tx = async () => []
  const owner: BatchRun = { tenantId: 1, operationId: 'op_1' }
  const run = (
    runBatch: typeof transactional.runBatch,
    batch: typeof items | { key: string; input: null }[] = items,
  ) => {
    const { executor } = build({ ...transactional, runBatch })
    if (executor.kind !== 'transactional') throw new Error('not transactional')
    return executor.runBatch(
      tx,
      batch.map((item) => ({ effectKey: item.key, attempt: 1, ...item })),
      owner,
    )
  }

  it('gives the handler parsed inputs and passes its results on', async () => {
    const seen: number[] = []
    expect(
      await run(async (_tx, batch) => {
        seen.push(...batch.map(({ input }) => input.times))
        return [{ key: 'b', state: 'skipped', reasonCode: 'SAME' }]
      }),
    ).toEqual([{ key: 'b', state: 'skipped', reasonCode: 'SAME' }])
    expect(seen).toEqual([1, 1])
    expect(await run(async () => undefined)).toBeUndefined()
  })

  it('rejects single inputs that no longer fit and runs the others', async () => {
    const results = await run(async () => undefined, [...items, { key: 'c', input: null }] as typeof items)
    expect(results).toMatchObject([{ key: 'c', state: 'failed', failureClass: 'validation_rejected' }])
    const called: unknown[] = []
    await run(async (_tx, batch) => void called.push(batch), [{ key: 'c', input: null }])
    expect(called).toEqual([])
  })

  it.each<[string, unknown]>([
    ['uncertain', [{ key: 'a', state: 'uncertain', reasonCode: 'X' }]],
    ['no list', 'ok'],
    ['a foreign key', [{ key: 'z', state: 'applied' }]],
    [
      'two results',
      [
        { key: 'a', state: 'applied' },
        { key: 'a', state: 'applied' },
      ],
    ],
  ])('throws for %s, so that the transaction rolls back', async (_name, results) => {
    await expect(run(async () => results as never)).rejects.toThrow(/runBatch gave/)
  })
})

describe('a module of types', () => {
  let directory: string
  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'opledger-modules-'))
  })
  afterAll(() => rm(directory, { recursive: true, force: true }))

  const load = async (name: string, text: string) => {
    const file = path.join(directory, name)
    await writeFile(file, text)
    return loadOperationTypes({ paths: [file], env: {}, secrets: () => undefined })
  }
  const code = pathToFileURL(path.resolve('src/operation-types/code.ts')).href
  const zod = pathToFileURL(path.resolve('node_modules/zod/index.js')).href
  const head = `import { defineOperationType } from '${code}'\nimport { z } from '${zod}'\n`
  const definition = `defineOperationType({ name: 'm', version: 1, effect: 'transactional', input: z.object({}), runBatch: async () => undefined })`

  it.each([
    ['named.ts', `${head}export const types = [${definition}]`],
    ['default.ts', `${head}export default [${definition}]`],
  ])('%s gives its types the hash of the file as code version', async (name, text) => {
    const registry = await load(name, text)
    expect(registry.get('m')).toMatchObject({ codeVersion: expect.stringMatching(/^sha256:/), effect: 'transactional' })
  })

  it.each([
    ['broken.mjs', 'throw new Error("two\\nlines")', 'broken.mjs: cannot be loaded: two lines'],
    ['none.mjs', 'export const other = 1', 'none.mjs: must export a list of types'],
    ['plain.mjs', 'export default [{ name: "p" }]', 'plain.mjs: type "p": must be made by defineOperationType'],
    ['empty.mjs', 'export default []', 'empty.mjs: types: must name at least one type'],
    [
      'bad.ts',
      `${head}export default [${definition.replace('version: 1', 'version: 0')}]`,
      'bad.ts: type "m": version:',
    ],
  ])('%s stops the start', async (name, text, message) => {
    await expect(load(name, text)).rejects.toThrow(message)
  })
})

describe('the examples', () => {
  const examples = () => loadOperationTypes({ paths: [], env: {}, secrets: () => undefined })

  it.each([
    ['ok', { state: 'applied', effectRef: 'message:key' }],
    ['reject', { state: 'failed', failureClass: 'validation_rejected', reasonCode: 'UNKNOWN_RECIPIENT' }],
    ['busy', { state: 'failed', failureClass: 'transient', reasonCode: 'PROVIDER_BUSY' }],
    ['uncertain', { state: 'uncertain', reasonCode: 'TIMEOUT' }],
  ])('example-notify answers mode %s', async (mode, outcome) => {
    const executor = (await examples()).get('example-notify')?.executor
    if (executor?.kind !== 'external') throw new Error('not external')
    expect((await executor.send({ ...call, input: { to: 'a', mode, delay_ms: 0 } })).outcome).toEqual(outcome)
  })

  it('example-import writes a batch in one statement', async () => {
    const executor = (await examples()).get('example-import')?.executor
    if (executor?.kind !== 'transactional') throw new Error('not transactional')
    const statements: unknown[][] = []
    const tx = async (_strings: TemplateStringsArray, ...parameters: unknown[]) => {
      statements.push(parameters)
      return []
    }
    const place = { name: 'Ulm', country: 'DE', lat: 48.4, lng: 10 }
    const items = ['1', '2'].map((key) => ({ key, input: place, effectKey: key, attempt: 1 }))
    await executor.runBatch(tx, items, { tenantId: 7, operationId: `op_${'a'.repeat(32)}` })
    expect(statements).toEqual([
      [
        '7',
        'a'.repeat(32),
        JSON.stringify([
          { id: '1', ...place },
          { id: '2', ...place },
        ]),
      ],
    ])
  })
})

describe('cancelGuarantee', () => {
  it.each([
    ['artifact', [], 'discarded_before_publish'],
    ['transactional', ['money'], 'stops_at_batch_boundary'],
    ['external', ['permission'], 'no_new_sends'],
    ['external', ['money'], 'no_new_commands'],
  ] as const)('%s touching %j: %s', (effect, touches, guarantee) => {
    expect(cancelGuarantee({ effect, touches: [...touches] })).toBe(guarantee)
  })
})
