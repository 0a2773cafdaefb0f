import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { buildCodeType, type CodeDefinition, defineOperationType } from '../../src/operation-types/code.ts'

const input = z.object({ parts: z.int() })
type Definition = CodeDefinition<typeof input> & { effect: 'artifact' }

const report = {
  name: 'report',
  version: 1,
  effect: 'artifact',
  input,
  plan: async ({ parts }) => Array.from({ length: parts }, (_, part) => ({ key: `p${part}`, input: { part } })),
  async *writeChunk() {
    yield 'text'
  },
  file: () => ({ name: 'my report.csv', contentType: 'text/csv; charset=utf-8' }),
} satisfies Definition

const run = { tenantId: 1, operationId: 'op_0', query: async () => [] }
const build = (change: object = {}) =>
  buildCodeType(defineOperationType({ ...report, ...change } as Definition), { codeVersion: 'v1' })
const executorOf = (change: object = {}) => {
  const { executor } = build(change)
  if (executor.kind !== 'artifact') throw new Error('no artifact')
  return executor
}
const planned = (plan: unknown) => executorOf({ plan: async () => plan }).plan({ parts: 1 }, run)

describe('an artifact type', () => {
  it('has defaults of its own', () => {
    expect(build()).toMatchObject({
      concurrency: 2,
      retention: { itemsDays: 7, ledgerDays: 7 },
      executor: { kind: 'artifact', chunkTimeoutMs: 15_000 },
    })
    expect(build().effectKey({ key: 'p0', input: {}, rootOperationId: 'op' })).toEqual({ key: 'report:op:p0' })
  })

  it.each([
    [{ plan: undefined }, 'plan: is required for effect artifact'],
    [{ writeChunk: undefined }, 'writeChunk: is required for effect artifact'],
    [{ file: undefined }, 'file: is required for effect artifact'],
    [{ send: async () => ({ state: 'applied' }) }, 'send: has no meaning for effect artifact'],
    [{ effect_key: '{item.key}' }, 'effect_key: has no meaning for effect artifact'],
    [{ timeout_ms: 40_000 }, 'lease_seconds: must be more than the call timeout'],
    [{ plan: 'x' }, 'plan: must be a function'],
  ])('refuses %j', (change, message) => expect(() => build(change)).toThrow(message))
})

describe('what its handlers give out', () => {
  it('is taken when it fits', async () => {
    expect(await executorOf().plan({ parts: 2 }, run)).toEqual({
      chunks: [
        { key: 'p0', input: { part: 0 } },
        { key: 'p1', input: { part: 1 } },
      ],
    })
    const issues = [{ pointer: '/parts', detail: 'no' }]
    expect(await planned({ issues })).toEqual({ issues })
    expect(executorOf().file({ parts: 1 })).toEqual({ name: 'my-report.csv', contentType: 'text/csv; charset=utf-8' })
    expect(executorOf().artifactKey({ parts: 1 })).toBeNull()
    expect(executorOf({ artifactKey: () => 'k' }).artifactKey({ parts: 1 })).toBe('k')
  })

  it.each([
    [[], 'plan gave no valid answer'],
    [undefined, 'plan gave no valid answer'],
    [[{ key: '', input: {} }], 'plan gave no valid answer'],
    [[{ key: 'x'.repeat(256), input: {} }], 'plan gave no valid answer'],
    [[{ key: 'a', input: new Date() }], 'plan gave no valid answer'],
    [[{ key: 'a', input: '\0' }], 'plan gave no valid answer'],
    [
      [
        { key: 'a', input: 1 },
        { key: 'a', input: 2 },
      ],
      'two chunks one key',
    ],
    [[{ key: 'publish', input: 1 }], 'or called one "publish"'],
    [{ issues: [] }, 'plan gave no valid answer'],
  ])('as a plan, %j names the fault', async (plan, message) => {
    await expect(planned(plan)).rejects.toThrow(message)
  })

  it('may be too much', async () => {
    const chunks = Array.from({ length: 10_001 }, (_, part) => ({ key: `p${part}`, input: null }))
    expect(await planned(chunks)).toMatchObject({ issues: [{ detail: expect.stringContaining('10001 chunks') }] })
  })

  it.each([
    [{ name: '', contentType: 'text/csv' }],
    [{ name: 'a', contentType: 'text' }],
    [{ name: 'a', contentType: 'text/csv\r\nset-cookie: a' }],
  ])('as a file, %j names the fault', (file) => {
    expect(() => executorOf({ file: () => file }).file({ parts: 1 })).toThrow('file gave no valid answer')
  })
})
