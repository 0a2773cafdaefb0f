import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { safetyMarginMs } from '../../../src/domain/lease.ts'
import {
  fitInputs,
  isIsolated,
  leaseWithinMs,
  REMOTE_INPUT_BYTES_MAX,
  REMOTE_ITEMS_MAX,
  remoteRoom,
  sendWithinMs,
} from '../../../src/domain/remote-work.ts'

const room = { wanted: 10, concurrency: 16, inFlight: 0, isolated: false, ratePerSecond: null }

describe('the room of a worker elsewhere', () => {
  test.each([
    ['what it asks for', {}, 10],
    ['no more than its type allows in hand', { wanted: 100 }, 16],
    ['what is left of that', { inFlight: 10 }, 6],
    ['nothing beyond it', { inFlight: 20 }, 0],
    ['nothing, when it wants nothing', { wanted: 0 }, 0],
    ['one, among suspects', { isolated: true }, 1],
    ['none beside a suspect', { isolated: true, inFlight: 1 }, 0],
    ['half a second of the rate', { ratePerSecond: 7 }, 4],
    ['one of a slow rate', { ratePerSecond: 0.1 }, 1],
    ['the most that an answer holds', { wanted: 9_999, concurrency: 9_999 }, REMOTE_ITEMS_MAX],
    ['the most of a fast rate, too', { wanted: 9_999, concurrency: 9_999, ratePerSecond: 1e5 }, REMOTE_ITEMS_MAX],
  ])('%s', (_name, change, expected) => {
    expect(remoteRoom({ ...room, ...change })).toBe(expected)
  })
})

describe('the inputs of an answer', () => {
  const sizes = (...bytes: number[]) => fitInputs(bytes, (size) => size)
  test('are cut where they grow too large, but never to nothing', () => {
    expect(sizes()).toEqual([])
    expect(sizes(1, 2, 3)).toEqual([1, 2, 3])
    expect(sizes(...Array(9).fill(1_048_576))).toHaveLength(8)
    expect(sizes(REMOTE_INPUT_BYTES_MAX, 1)).toEqual([REMOTE_INPUT_BYTES_MAX])
    expect(sizes(REMOTE_INPUT_BYTES_MAX - 1, 1, 1)).toEqual([REMOTE_INPUT_BYTES_MAX - 1, 1])
    expect(sizes(REMOTE_INPUT_BYTES_MAX + 1, 1)).toEqual([REMOTE_INPUT_BYTES_MAX + 1])
  })
})

describe('deadlines', () => {
  test('are what is left of the lease without its margin, from the asking on', () => {
    expect(leaseWithinMs({ waitedMs: 0, leaseLeftMs: 30_000, leaseMs: 30_000 })).toBe(28_000)
    expect(leaseWithinMs({ waitedMs: 20_000, leaseLeftMs: 30_000, leaseMs: 30_000 })).toBe(48_000)
    expect(leaseWithinMs({ waitedMs: 0, leaseLeftMs: -5, leaseMs: 30_000 })).toBe(0)
    expect(sendWithinMs({ leaseWithinMs: 28_000, callTimeoutMs: 5_000 })).toBe(23_000)
    expect(sendWithinMs({ leaseWithinMs: 4_000, callTimeoutMs: 5_000 })).toBe(0)
  })

  test('as a worker counts them end no later than those of the service, and its call ends before the lease', () => {
    fc.assert(
      fc.property(
        fc.record({
          onTheWayMs: fc.nat(60_000),
          waitedMs: fc.nat(60_000),
          leaseMs: fc.integer({ min: 2_000, max: 3_600_000 }),
          callTimeoutMs: fc.integer({ min: 10, max: 600_000 }),
        }),
        ({ onTheWayMs, waitedMs, leaseMs, callTimeoutMs }) => {
          const askedAt = 1_000
          const leaseReadAt = askedAt + onTheWayMs + waitedMs
          const within = leaseWithinMs({ waitedMs, leaseLeftMs: leaseMs, leaseMs })
          const lastSend = askedAt + sendWithinMs({ leaseWithinMs: within, callTimeoutMs })
          if (lastSend === askedAt) return
          expect(lastSend + callTimeoutMs).toBeLessThanOrEqual(leaseReadAt + leaseMs - safetyMarginMs(leaseMs))
        },
      ),
    )
  })
})

test('isolation ends behind the suspects, and is only for a shard that has lost workers', () => {
  expect(isIsolated({ isolated: true, cursor: 3, isolateUntil: 4 })).toBe(true)
  expect(isIsolated({ isolated: true, cursor: 4, isolateUntil: 4 })).toBe(false)
  expect(isIsolated({ isolated: true, cursor: 0, isolateUntil: null })).toBe(false)
  expect(isIsolated({ isolated: false, cursor: 0, isolateUntil: 4 })).toBe(false)
})
