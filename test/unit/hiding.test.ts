import { describe, expect, it } from 'vitest'
import { HIDDEN } from '../../src/domain/hidden-values.ts'
import type { Executor, Json, LookupOutcome, OperationType, SendCall } from '../../src/domain/operation-type.ts'
import { withHidden } from '../../src/operation-types/hiding.ts'
import { plantedType } from '../support/planted-operation.ts'

const SECRET = 'secret-token'
const input: Json = { user: 'ann@example.com' }
const call: SendCall = {
  effectKey: 'k',
  step: '',
  itemKey: 'a',
  input,
  operationId: 'op_1',
  type: 't',
  attempt: 1,
  traceparent: null,
  mayStart: () => true,
}
const echo = `${SECRET} of ann@example.com`
const hidden = `${HIDDEN} of ${HIDDEN}`

const typeWith = (executor: Executor, change: Partial<OperationType> = {}): OperationType =>
  withHidden(plantedType('t', { mask: ['/user'], executor, ...change }), () => [SECRET])
const external = (change: Partial<Extract<Executor, { kind: 'external' }>>): Executor => ({
  kind: 'external',
  callTimeoutMs: 1,
  send: async () => ({ outcome: { state: 'unsent' }, downstreamError: false }),
  lookup: null,
  ...change,
})

describe('an external type', () => {
  it('says nothing of what it was sent', async () => {
    const { executor } = typeWith(
      external({
        send: async () => ({
          outcome: { state: 'failed', failureClass: 'conflict', reasonCode: echo, message: echo },
          downstreamError: true,
        }),
      }),
    )
    if (executor.kind !== 'external') throw new Error('it is another kind')
    expect(await executor.send(call)).toEqual({
      outcome: { state: 'failed', failureClass: 'conflict', reasonCode: hidden, message: hidden },
      downstreamError: true,
    })
  })

  it('nor does the lookup of a step, or what takes effects back', async () => {
    const found: LookupOutcome = { state: 'applied', effectRef: echo, evidenceRef: echo }
    const lookup = { afterMs: 1, timeoutMs: 1, find: async () => found }
    const one = external({ lookup, stepLookups: new Map([['pay', lookup]]) })
    const { executor, compensator } = typeWith(one, { compensator: one })
    for (const each of [executor, compensator]) {
      if (each?.kind !== 'external') throw new Error('it is another kind')
      for (const asked of [each.lookup, each.stepLookups?.get('pay')])
        expect(await asked?.find(call)).toEqual({ state: 'applied', effectRef: hidden, evidenceRef: hidden })
      expect((await each.send(call)).outcome).toEqual({ state: 'unsent' })
    }
    expect(typeWith(one).compensator).toBeNull()
  })
})

describe('a transactional type', () => {
  const tx = async () => []
  const run = { tenantId: 1, operationId: 'op_1' }
  const items = [{ key: 'a', input, effectKey: 'k', attempt: 1 }]
  const runWith = (runBatch: Extract<Executor, { kind: 'transactional' }>['runBatch']) => {
    const { executor } = typeWith({ kind: 'transactional', runBatch })
    if (executor.kind !== 'transactional') throw new Error('it is another kind')
    return executor.runBatch(tx, items, run)
  }

  it('says nothing of its items', async () => {
    const failed = { key: 'a', state: 'failed', failureClass: 'conflict', message: echo } as const
    expect(await runWith(async () => [failed])).toEqual([{ ...failed, message: hidden }])
    expect(await runWith(async () => undefined)).toBeUndefined()
  })

  it('throws what was thrown, with its code', async () => {
    const error = Object.assign(new Error(`no ${echo}`), { code: '22P02' })
    await expect(runWith(() => Promise.reject(error))).rejects.toBe(error)
    expect(error).toMatchObject({ message: `no ${hidden}`, code: '22P02' })
    expect(error.stack).not.toContain('ann@')
    await expect(runWith(() => Promise.reject(`no ${echo}`))).rejects.toBe(`no ${hidden}`)
    await expect(runWith(() => Promise.reject(5))).rejects.toBe(5)
    const bare = new Error(echo)
    delete bare.stack
    await expect(runWith(() => Promise.reject(bare))).rejects.toMatchObject({ message: hidden })
  })
})

it('an artifact type writes what it writes, and hides what it throws', async () => {
  const { executor } = typeWith({
    kind: 'artifact',
    chunkTimeoutMs: 1,
    plan: async () => ({ chunks: [] }),
    async *writeChunk() {
      yield 'ann@example.com'
      throw new Error(echo)
    },
    file: () => ({ name: 'f', contentType: 't' }),
    artifactKey: () => null,
  })
  if (executor.kind !== 'artifact') throw new Error('it is another kind')
  const { signal } = new AbortController()
  const query = async () => []
  const bytes = executor.writeChunk({ key: 'a', input }, { tenantId: 1, operationId: 'op_1', query, signal })
  const written: unknown[] = []
  const reading = (async () => {
    for await (const piece of bytes) written.push(piece)
  })()
  await expect(reading).rejects.toThrow(hidden)
  expect(written).toEqual(['ann@example.com'])
})
