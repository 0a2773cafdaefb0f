import { describe, expect, it } from 'vitest'
import { isRemote, type Json, type LookupOutcome, type SendCall } from '../../src/domain/operation-type.ts'
import { DefinitionError } from '../../src/domain/operation-type-definition.ts'
import { buildDeclarativeType } from '../../src/operation-types/declarative.ts'
import type { Exchange, Outbound } from '../../src/operation-types/outbound.ts'

const asked: { url: string; traceparent: string | undefined }[] = []
const answer: Exchange = { kind: 'answered', status: 200, body: '{"id":"m-1"}' }
const outbound: Outbound = {
  exchange: async (request) => {
    asked.push({ url: `${request.origin}${request.path}`, traceparent: request.headers.traceparent })
    return answer
  },
  close: async () => {},
}
const build = (change: Record<string, Json> = {}) =>
  buildDeclarativeType(
    { name: 'mail', version: 2, effect: 'external', remote: {}, ...change },
    { outbound, env: {}, secrets: () => undefined },
  )
const refusal = (change: Record<string, Json>): string => {
  try {
    build(change)
  } catch (error) {
    if (error instanceof DefinitionError) return error.message
    throw error
  }
  return 'not refused'
}
const lookup = {
  url: 'http://mail.test/mails/{effect_key}',
  after_ms: 7,
  outcome: [{ status: [200], state: 'applied', ref: '/id' }],
}
const call: SendCall = {
  effectKey: 'mail:1/ship',
  step: 'ship',
  itemKey: 'i',
  input: {},
  operationId: 'op_1',
  type: 'mail',
  attempt: 1,
  traceparent: 'trace',
  mayStart: () => true,
}

describe('a type with `remote`', () => {
  it('is external, is run by nobody here, and has the defaults of every type', async () => {
    const type = build()
    expect(type).toMatchObject({
      effect: 'external',
      compensator: null,
      callback: null,
      onAbsent: 'case',
      leaseMs: 30_000,
    })
    expect(isRemote(type)).toBe(true)
    expect(isRemote({ executor: { kind: 'transactional', runBatch: async () => undefined } })).toBe(false)
    if (type.executor.kind !== 'external') throw new Error('it is not external')
    expect(type.executor).toMatchObject({ callTimeoutMs: 5_000, lookup: null, remote: true })
    expect(await type.executor.send({ ...call, step: '' })).toEqual({
      outcome: { state: 'unsent' },
      downstreamError: false,
    })
    expect(type.effectKey({ key: 'a', input: {}, rootOperationId: 'op_1' })).toEqual({ key: 'mail:op_1:a' })
  })

  it('takes from `remote` what others say under `http`', () => {
    const type = build({
      remote: {
        call_timeout_ms: 700,
        on_absent: 'retry',
        provider_idempotent_hours: 1,
        no_compensation: 'sent is sent',
      },
      touches: ['external_send'],
    })
    expect(type).toMatchObject({
      onAbsent: 'retry',
      providerIdempotentMs: 3_600_000,
      noCompensationReason: 'sent is sent',
    })
    expect(type.executor).toMatchObject({ callTimeoutMs: 700 })
    expect(
      isRemote(
        build({
          remote: undefined as never,
          http: { request: { url: 'http://a.test' }, outcome: lookup.outcome as Json },
        }),
      ),
    ).toBe(false)
  })

  it('asks about an effect in doubt from here, by step where it has steps', async () => {
    const plain = build({ remote: { lookup } })
    const stepped = build({ remote: { steps: [{ name: 'reserve' }, { name: 'ship', irreversible: true, lookup }] } })
    expect([stepped.steps, stepped.endsIrreversibly]).toEqual([['reserve', 'ship'], true])
    const found: LookupOutcome[] = []
    for (const { executor } of [plain, stepped]) {
      if (executor.kind !== 'external') throw new Error('it is not external')
      const ask = executor.lookup ?? executor.stepLookups?.get('ship')
      expect(ask).toMatchObject({ afterMs: 7, timeoutMs: 5_000 })
      if (ask) found.push(await ask.find(call))
    }
    expect(found).toEqual(Array(2).fill({ state: 'applied', effectRef: 'm-1', evidenceRef: 'lookup:HTTP 200 m-1' }))
    expect(asked).toEqual(Array(2).fill({ url: 'http://mail.test/mails/mail%3A1%2Fship', traceparent: 'trace' }))
  })

  it.each<[string, Record<string, Json>, string]>([
    [
      'http beside it',
      { http: { request: { url: 'http://a.test' }, outcome: lookup.outcome as Json } },
      'http: must not stand beside remote',
    ],
    ['another effect', { effect: 'artifact' }, 'effect: artifact needs code'],
    ['an unknown member', { remote: { request: {} } }, 'remote.request: unknown member'],
    [
      'a lookup beside steps',
      { remote: { lookup, steps: [{ name: 'a' }] } },
      'remote.lookup: must not stand beside steps',
    ],
    [
      'the same step twice',
      { remote: { steps: [{ name: 'a' }, { name: 'a' }] } },
      'remote.steps.1.name: "a" is the name',
    ],
    ['a call that no lease holds', { remote: { call_timeout_ms: 30_000 } }, 'lease_seconds: must be more than'],
    ['money without a word', { touches: ['money'] }, 'no_compensation: required because touches names money'],
    [
      'an unknown placeholder',
      { remote: { lookup: { ...lookup, url: 'http://a.test/{nothing}' } } },
      'remote.lookup.url',
    ],
  ])('is refused with %s', (_name, change, message) => {
    expect(refusal(change)).toContain(message)
  })
})
