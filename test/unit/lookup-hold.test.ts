import { describe, expect, it } from 'vitest'
import type { Executor } from '../../src/domain/operation-type.ts'
import { LOOKUP_TURNS, lookupHoldMs } from '../../src/services/lookup-case.ts'

const lookup = (timeoutMs: number) => ({
  afterMs: 0,
  timeoutMs,
  find: () => Promise.resolve({ state: 'unknown', reasonCode: 'TEST' } as const),
})
const external = (timeoutMs: number | null, stepTimeouts: readonly number[] = []): Executor => ({
  kind: 'external',
  callTimeoutMs: 800,
  send: () => Promise.reject(new Error('nothing is sent here')),
  lookup: timeoutMs === null ? null : lookup(timeoutMs),
  stepLookups: new Map(stepTimeouts.map((timeout, index) => [String(index), lookup(timeout)])),
})

/** Lease + 2 sweeps + 10 s, with the shortest lease there is. */
const SETTLE_MS = 1_000 + 2 * 2_000 + 10_000

describe('a case that was taken for a lookup belongs to its taker', () => {
  it.each([
    ['of the type', { executor: external(800), compensator: null }, 800],
    ['of the slowest step', { executor: external(null, [800, 20_000, 3_000]), compensator: null }, 20_000],
    ['of its compensation', { executor: external(800), compensator: external(30_000) }, 30_000],
  ])('longer than asking about it may take: %s', (_name, type, timeoutMs) => {
    expect(lookupHoldMs([type])).toBeGreaterThan(LOOKUP_TURNS * timeoutMs)
  })

  it('and no longer: where lookups are quick, a taker that died delays no operation beyond what settling may take', () => {
    expect(lookupHoldMs([{ executor: external(800), compensator: null }])).toBeLessThan(SETTLE_MS)
  })

  it('also where there is nothing to ask', () => {
    expect(lookupHoldMs([{ executor: external(null), compensator: null }])).toBeGreaterThan(0)
  })
})
