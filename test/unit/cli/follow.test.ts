import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Answer, ApiClient } from '../../../src/cli/api-client.ts'
import type { Case, Operation } from '../../../src/cli/api-types.ts'
import { CommandFailure, EXIT } from '../../../src/cli/exit-codes.ts'
import { follow } from '../../../src/cli/follow.ts'
import { operationIn } from './operations.ts'

type Step = Operation | 'unchanged' | Error
const UNREACHED = new CommandFailure('cannot be reached', EXIT.unavailable)

/** Answers in order; the last one again and again. */
const open = (steps: Step[], nextLookups: (string | null)[][] = []) => {
  const asked: ({ seen: string; seconds: number } | null)[] = []
  let version = 0
  const api = {
    async getOperation(_id: string, wait: { seen: string; seconds: number } | null): Promise<Answer<Operation> | null> {
      asked.push(wait)
      const step = steps.length > 1 ? steps.shift() : steps[0]
      if (step instanceof Error) throw step
      if (step === 'unchanged' || step === undefined) return null
      return { body: step, etag: `"${++version}"`, replayed: false }
    },
    async cases(): Promise<Case[]> {
      const next = nextLookups.length > 1 ? nextLookups.shift() : nextLookups[0]
      return (next ?? []).map((next_at) => ({ lookups: { count: 1, last_answer: null, next_at } }) as Case)
    },
  } as unknown as ApiClient
  const seen: string[] = []
  const silences: string[] = []
  const controller = new AbortController()
  const following = follow(api, 'op_1', {
    signal: controller.signal,
    show: ({ status }) => seen.push(status),
    onSilence: (message) => silences.push(message),
  })
  following.catch(() => {})
  return { following, asked, seen, silences, controller }
}

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

describe('following an operation', () => {
  it('asks with the last ETag and a wait, and ends with the final state', async () => {
    const { following, asked, seen } = open([
      operationIn('pending'),
      'unchanged',
      operationIn('running'),
      operationIn('failed'),
    ])
    await vi.advanceTimersByTimeAsync(10_000)
    expect((await following).status).toBe('failed')
    expect(seen).toEqual(['pending', 'running', 'failed'])
    expect(asked).toEqual([
      null,
      { seen: '"1"', seconds: 20 },
      { seen: '"1"', seconds: 20 },
      { seen: '"2"', seconds: 20 },
    ])
  })

  it('waits while the provider will still be asked, and ends when all that is left waits for a person', async () => {
    const doubtful = operationIn('reconciliation_required')
    const { following } = open(
      [doubtful, 'unchanged'],
      [
        ['2026-11-29T14:20:00Z', null],
        [null, null],
      ],
    )
    let ended = false
    void following.then(() => {
      ended = true
    })
    await vi.advanceTimersByTimeAsync(1_000)
    expect(ended).toBe(false)
    await vi.advanceTimersByTimeAsync(4_000)
    expect((await following).status).toBe('reconciliation_required')
  })

  it('goes on when a lookup clears the doubt', async () => {
    const { following } = open(
      [operationIn('reconciliation_required'), operationIn('succeeded')],
      [['2026-11-29T14:20:00Z']],
    )
    await vi.advanceTimersByTimeAsync(3_000)
    expect((await following).status).toBe('succeeded')
  })

  it('outlives a service that is away for a while, says so once, and asks again', async () => {
    const { following, silences } = open([
      operationIn('running'),
      UNREACHED,
      UNREACHED,
      UNREACHED,
      operationIn('succeeded'),
    ])
    await vi.advanceTimersByTimeAsync(10_000)
    expect((await following).status).toBe('succeeded')
    expect(silences).toEqual(['cannot be reached'])
  })

  it('gives up after five minutes of silence, and at once at a refusal', async () => {
    const silent = open([operationIn('running'), UNREACHED])
    const failed = expect(silent.following).rejects.toBe(UNREACHED)
    await vi.advanceTimersByTimeAsync(6 * 60_000)
    await failed
    const refused = open([new CommandFailure('no such operation', EXIT.refused)])
    await expect(refused.following).rejects.toThrow('no such operation')
  })

  it('stops when it is interrupted', async () => {
    const { following, controller } = open([operationIn('running')])
    const failed = expect(following).rejects.toThrow('SIGINT')
    await vi.advanceTimersByTimeAsync(100)
    controller.abort(new Error('SIGINT'))
    await failed
  })
})
