import type { Json, LookupOutcome, OperationType, SendOutcome, SendReport } from '../../src/domain/operation-type.ts'
import { plantedType } from './planted-operation.ts'

/** A provider inside this process that answers what the test says, when the test says it. */
export interface Provider {
  /** What the next calls with this effect key are answered, in order; applied when nothing was said. */
  answer(effectKey: string, ...outcomes: SendOutcome[]): void
  /** Calls with this effect key wait until they are released. */
  hold(effectKey: string): void
  release(effectKey: string, outcome?: SendOutcome): void
  releaseAll(): void
  /** What lookups find from now on; unknown when nothing was said. */
  find(effectKey: string, outcome: LookupOutcome | 'down'): void
  /** How often each effect key was called. */
  calls(effectKey: string): number
  /** Effect keys of all calls, in order. */
  log(): string[]
  /** An external type that calls this provider. The effect key of an item is its input's `target`, or its own key. */
  type(name: string, figures?: Partial<OperationType>, lookup?: { afterMs: number } | null): OperationType
}

export const CALL_TIMEOUT_MS = 100
export const UNKNOWN: SendOutcome = { state: 'uncertain', reasonCode: 'TIMEOUT' }
export const BUSY: SendOutcome = { state: 'failed', failureClass: 'transient', reasonCode: 'BUSY' }

const targetOf = (key: string, input: Json): string =>
  typeof input === 'object' && input !== null && !Array.isArray(input) && typeof input.target === 'string'
    ? input.target
    : key

export const openProvider = (): Provider => {
  const scripts = new Map<string, SendOutcome[]>()
  const found = new Map<string, LookupOutcome | 'down'>()
  const holding = new Set<string>()
  const held = new Map<string, (outcome: SendOutcome) => void>()
  const log: string[] = []

  const send = async (effectKey: string): Promise<SendReport> => {
    log.push(effectKey)
    if (holding.has(effectKey)) {
      return { outcome: await new Promise((resolve) => held.set(effectKey, resolve)), downstreamError: false }
    }
    const outcome = scripts.get(effectKey)?.shift() ?? { state: 'applied', effectRef: `ref:${effectKey}` }
    return { outcome, downstreamError: false }
  }
  const release = (effectKey: string, outcome: SendOutcome = { state: 'applied', effectRef: `ref:${effectKey}` }) => {
    holding.delete(effectKey)
    held.get(effectKey)?.(outcome)
    held.delete(effectKey)
  }

  return {
    answer: (effectKey, ...outcomes) => void scripts.set(effectKey, outcomes),
    hold: (effectKey) => void holding.add(effectKey),
    release,
    releaseAll: () => {
      for (const effectKey of [...holding, ...held.keys()]) release(effectKey)
    },
    find: (effectKey, outcome) => void found.set(effectKey, outcome),
    calls: (effectKey) => log.filter((key) => key === effectKey).length,
    log: () => [...log],
    type: (name, figures = {}, lookup = null) =>
      plantedType(name, {
        leaseMs: 2_000,
        concurrency: 4,
        retry: { maxAttempts: 3, baseMs: 20, maxMs: 50 },
        effectKey: ({ key, input }) => ({ key: targetOf(key, input) }),
        executor: {
          kind: 'external',
          callTimeoutMs: CALL_TIMEOUT_MS,
          send: ({ effectKey }) => send(effectKey),
          lookup: lookup && {
            afterMs: lookup.afterMs,
            timeoutMs: CALL_TIMEOUT_MS,
            find: async ({ effectKey }) => {
              const outcome = found.get(effectKey) ?? { state: 'unknown', reasonCode: 'PROCESSING' }
              return outcome === 'down' ? { state: 'unknown', reasonCode: 'LOOKUP_DOWN' } : outcome
            },
          },
        },
        ...figures,
      }),
  }
}
