/** How a type says that its effects are taken back, and what is sent then. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  type Executor,
  executorOf,
  type OperationType,
  providerIdempotentMsOf,
  type SendCall,
} from '../../src/domain/operation-type.ts'
import { buildCodeType, type CodeDefinition, defineOperationType } from '../../src/operation-types/code.ts'
import { loadOperationTypes, type TypeRegistry } from '../../src/operation-types/registry.ts'

type External = Extract<Executor, { kind: 'external' }>
const call: SendCall = {
  effectKey: 'compensate:2:grant:ö',
  step: '',
  itemKey: 'item',
  input: { to: 'a', user: 'u' },
  operationId: 'op_1',
  type: 'grant',
  attempt: 1,
  traceparent: '00-1-2-01',
  mayStart: () => true,
}
const externalOf = (type: OperationType): External => {
  const { compensator } = type
  if (compensator?.kind !== 'external') throw new Error('not external')
  return compensator
}

describe('http.compensate of a type file', () => {
  const seen: { method: string; url: string; headers: http.IncomingHttpHeaders; body: string }[] = []
  /** Answered next; 0: the connection is reset. */
  let status = 200
  let directory: string
  let server: http.Server
  let registries: TypeRegistry[] = []
  beforeAll(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'opledger-compensation-'))
    server = http.createServer(async (request, response) => {
      let body = ''
      for await (const chunk of request) body += chunk
      seen.push({ method: request.method ?? '', url: request.url ?? '', headers: request.headers, body })
      if (status === 0) return void request.socket.resetAndDestroy()
      response.writeHead(status, { 'content-type': 'application/json' }).end('{"id":"undone-1","code":"WHY"}')
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  })
  afterAll(async () => {
    await Promise.all(registries.map((registry) => registry.close()))
    registries = []
    rmSync(directory, { recursive: true, force: true })
    await new Promise((resolve) => server.close(resolve))
  })

  const load = async (compensate: object, change: object = {}): Promise<OperationType> => {
    const file = path.join(directory, 'types.json')
    const definition = {
      name: 'grant',
      version: 1,
      effect: 'external',
      effect_key: 'grant:{item.key}',
      http: {
        request: { url: '{env.URL}/grants', timeout_ms: 700 },
        outcome: [{ status: [200], state: 'applied' }],
        compensate,
      },
      ...change,
    }
    writeFileSync(file, JSON.stringify({ types: [definition] }))
    const env = { URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
    const registry = await loadOperationTypes({ paths: [file], env, secrets: () => undefined })
    registries.push(registry)
    const type = registry.get('grant')
    if (!type) throw new Error('no type was loaded')
    return type
  }
  const remove = { method: 'DELETE', url: '{env.URL}/grants/{effect_key}' }

  it('names the effect in {effect_key}, and sends its own key as Idempotency-Key', async () => {
    status = 204
    const type = await load(remove)
    expect(type.compensation).toBe('available')
    const report = await externalOf(type).send(call)
    expect(report).toEqual({ outcome: { state: 'applied' }, downstreamError: false })
    expect(seen.at(-1)).toMatchObject({
      method: 'DELETE',
      url: '/grants/grant%3A%C3%B6',
      headers: { 'idempotency-key': 'compensate:2:grant:%C3%B6', traceparent: '00-1-2-01' },
    })
  })

  it('has {compensation_key} as well, and leaves a header that the type sets alone', async () => {
    status = 200
    const type = await load({
      url: '{env.URL}/refunds/{compensation_key}',
      headers: { 'idempotency-KEY': 'refund-{effect_key}' },
      body: { of: '{effect_key}', by: '{compensation_key}', user: '{input.user}', item: '{item.key}' },
      outcome: [{ status: [200], state: 'applied', ref: '/id' }],
    })
    expect(await externalOf(type).send(call)).toMatchObject({ outcome: { state: 'applied', effectRef: 'undone-1' } })
    const sent = seen.at(-1)
    expect(sent).toMatchObject({
      method: 'POST',
      url: '/refunds/compensate%3A2%3Agrant%3A%C3%B6',
      headers: { 'idempotency-key': 'refund-grant:%C3%B6' },
    })
    expect(JSON.parse(sent?.body ?? '')).toEqual({
      of: 'grant:ö',
      by: 'compensate:2:grant:ö',
      user: 'u',
      item: 'item',
    })
  })

  it.each<[number, string, object]>([
    [200, 'DELETE', { state: 'applied' }],
    [299, 'DELETE', { state: 'applied' }],
    [404, 'DELETE', { state: 'skipped', reasonCode: 'ALREADY_GONE' }],
    [410, 'DELETE', { state: 'skipped', reasonCode: 'ALREADY_GONE' }],
    [404, 'POST', { state: 'uncertain', reasonCode: 'UNCLASSIFIED_ANSWER' }],
    [400, 'DELETE', { state: 'failed', failureClass: 'validation_rejected' }],
    [422, 'POST', { state: 'failed', failureClass: 'validation_rejected' }],
    [401, 'DELETE', { state: 'failed', failureClass: 'policy_denied' }],
    [403, 'DELETE', { state: 'failed', failureClass: 'policy_denied' }],
    [409, 'DELETE', { state: 'failed', failureClass: 'conflict' }],
    [429, 'DELETE', { state: 'failed', failureClass: 'transient' }],
    [503, 'DELETE', { state: 'uncertain', reasonCode: 'SERVER_ERROR' }],
    [307, 'DELETE', { state: 'uncertain' }],
    [0, 'DELETE', { state: 'uncertain', reasonCode: 'CONNECTION_LOST' }],
  ])('an answer %i to a %s means, where no rule is given, %j', async (answer, method, outcome) => {
    status = answer
    expect((await externalOf(await load({ ...remove, method })).send(call)).outcome).toMatchObject(outcome)
  })

  it('takes its timeout from the request, or has one of its own that counts for the lease', async () => {
    expect(externalOf(await load(remove)).callTimeoutMs).toBe(700)
    expect(externalOf(await load({ ...remove, timeout_ms: 1_500 })).callTimeoutMs).toBe(1_500)
    await expect(load({ ...remove, timeout_ms: 1_500 }, { lease_seconds: 2 })).rejects.toThrow(
      'type "grant": lease_seconds: must be more than the call timeout plus a margin (1500 ms + 1000 ms)',
    )
  })

  it('is asked about by a lookup of its own only', async () => {
    const outcome = [
      { status: [404], state: 'applied' },
      { status: [200], state: 'absent' },
    ]
    expect(externalOf(await load(remove)).lookup).toBeNull()
    const type = await load({
      ...remove,
      lookup: { url: '{env.URL}/refunds/{compensation_key}', after_ms: 5, timeout_ms: 50, outcome },
    })
    const { lookup } = externalOf(type)
    expect(lookup).toMatchObject({ afterMs: 5, timeoutMs: 50 })
    expect(type.executor).toMatchObject({ lookup: null })
    status = 404
    expect(await lookup?.find(call)).toEqual({ state: 'applied', evidenceRef: 'lookup:HTTP 404' })
    expect(seen.at(-1)).toMatchObject({ method: 'GET', url: '/refunds/compensate%3A2%3Agrant%3A%C3%B6' })
  })

  it.each<[string, object, string]>([
    ['placeholder', { url: '{env.URL}/{compensation_kye}' }, 'http.compensate.url: unknown placeholder'],
    ['no rules', { ...remove, outcome: [] }, 'http.compensate.outcome: Too small'],
    ['lookup state', { ...remove, lookup: { url: 'http://h/', outcome: [{ status: [1], state: 'x' }] } }, 'lookup'],
  ])('stops the start: %s', async (_name, compensate, message) => {
    await expect(load(compensate)).rejects.toThrow(message)
  })

  it('has its placeholder nowhere else', async () => {
    const change = {
      http: { request: { url: '{env.URL}/{compensation_key}' }, outcome: [{ status: [200], state: 'applied' }] },
    }
    await expect(load({}, change)).rejects.toThrow('http.request.url: unknown placeholder {compensation_key}')
  })

  it('refuses an item for which no URL of the undoing can be made', async () => {
    const type = await load({ ...remove, url: '{env.URL}/users/{input.user}' })
    const item = { key: 'k', rootOperationId: 'op_0' }
    expect(type.effectKey({ ...item, input: { user: 'u' } })).toEqual({ key: 'grant:k' })
    expect(type.effectKey({ ...item, input: {} })).toMatchObject({ issue: { pointer: '/user' } })
    expect(type.validateInput({})).toMatchObject([{ pointer: '/user' }])
  })

  it('keeps the keys of compensations to itself', async () => {
    const type = await load(remove, { effect_key: 'compensate:{input.n}:{item.key}' })
    const item = { key: 'k', rootOperationId: 'op_0' }
    expect(type.effectKey({ ...item, input: { n: 1 } })).toMatchObject({
      issue: { detail: expect.stringContaining('only a compensation has') },
    })
    expect(type.effectKey({ ...item, input: { n: 'x' } })).toEqual({ key: 'compensate:x:k' })
  })
})

const input = z.object({ to: z.string() })
type Input = typeof input
const external: Extract<CodeDefinition<Input>, { effect: 'external' }> = {
  name: 'send',
  version: 1,
  effect: 'external',
  input,
  timeout_ms: 50,
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

describe('compensation in code', () => {
  it('is given the effect key of what it takes back, and its own', async () => {
    const type = build({
      ...external,
      compensate: async ({ effectKey, compensationKey, input: { to } }) => ({
        state: 'applied',
        effectRef: `${to} ${effectKey} ${compensationKey}`,
      }),
      compensateLookup: {
        after_ms: 3,
        find: async ({ effectKey, compensationKey }) => ({
          state: 'applied',
          evidenceRef: `${effectKey} ${compensationKey}`,
        }),
      },
    })
    expect(type.compensation).toBe('available')
    const compensator = externalOf(type)
    expect(await compensator.send(call)).toMatchObject({
      outcome: { state: 'applied', effectRef: 'a grant:ö compensate:2:grant:ö' },
    })
    expect(compensator.lookup).toMatchObject({ afterMs: 3, timeoutMs: 50 })
    expect(await compensator.lookup?.find(call)).toMatchObject({ evidenceRef: 'grant:ö compensate:2:grant:ö' })
  })

  it.each<[string, () => Promise<never>, string]>([
    ['throws', () => Promise.reject(new Error('no')), 'HANDLER_ERROR'],
    ['hangs', () => new Promise(() => {}), 'TIMEOUT'],
  ])('that %s is uncertain', async (_name, compensate, reasonCode) => {
    const { outcome } = await externalOf(build({ ...external, compensate })).send(call)
    expect(outcome).toMatchObject({ state: 'uncertain', reasonCode })
  })

  it('in batches is given both keys too', async () => {
    const seen: unknown[] = []
    const type = build({
      ...transactional,
      compensateBatch: async (_tx, items) => void seen.push(...items),
    })
    const { compensator } = type
    if (compensator?.kind !== 'transactional') throw new Error('not transactional')
    expect(type.compensation).toBe('available')
    const item = { key: 'a', input: { to: 'x' }, effectKey: 'compensate:1:k', attempt: 1 }
    expect(await compensator.runBatch(async () => [], [item], { tenantId: 1, operationId: 'op_1' })).toBeUndefined()
    expect(seen).toEqual([{ ...item, effectKey: 'k', compensationKey: 'compensate:1:k' }])
  })

  it('that is not there is none', () => {
    expect(build(external)).toMatchObject({ compensation: 'none', compensator: null })
    expect(build(transactional)).toMatchObject({ compensation: 'none', compensator: null })
  })

  it('refuses the key of no compensation', async () => {
    const keyed = { ...call, effectKey: 'k' }
    const { outcome } = await externalOf(build({ ...external, compensate: external.send })).send(keyed)
    expect(outcome).toMatchObject({ state: 'uncertain', reasonCode: 'HANDLER_ERROR' })
  })

  it.each<[string, object, string]>([
    ['compensate of a batch', { ...transactional, compensate: external.send }, 'compensate: has no meaning'],
    ['a batch for calls', { ...external, compensateBatch: transactional.runBatch }, 'compensateBatch: has no meaning'],
    [
      'a lookup alone',
      { ...external, compensateLookup: { find: async () => ({}) } },
      'compensateLookup: has no meaning without compensate',
    ],
    ['no function', { ...transactional, compensateBatch: 'x' }, 'compensateBatch: must be a function'],
  ])('refuses: %s', (_name, definition, message) => {
    expect(() => build(definition as CodeDefinition<Input>)).toThrow(message)
  })
})

describe('what runs a shard', () => {
  const type = { ...build({ ...external, compensate: external.send }), providerIdempotentMs: 5 }

  it('is the compensator where it compensates', () => {
    expect(executorOf(type, false)).toBe(type.executor)
    expect(executorOf(type, true)).toBe(type.compensator)
  })

  it('is never repeated on the promise that the provider gave for the effect itself', () => {
    expect([providerIdempotentMsOf(type, false), providerIdempotentMsOf(type, true)]).toEqual([5, 0])
  })
})
