/** The operation types of one sequence, each under a name of its own: no other sequence can claim its shards. */
import type { EffectLookup, Json, OperationType } from '../../src/domain/operation-type.ts'
import { plantedType } from '../support/planted-operation.ts'
import type { LookupAnswer, Provider } from './provider.ts'
import { CONCURRENCY, FLAVOURS, type Flavour, MAX_ATTEMPTS, STEPS, stepsOf } from './world.ts'

/** What the next lookup is answered. */
export interface Script {
  lookup: LookupAnswer
}

const targetOf = (input: Json): string =>
  typeof input === 'object' && input !== null && !Array.isArray(input) ? String(input.target) : ''

const external = (provider: Provider, script: Script, flavour: Flavour): OperationType['executor'] => {
  const lookup: EffectLookup = {
    afterMs: 0,
    timeoutMs: 1_000,
    find: async ({ effectKey }) => provider.lookUp(effectKey, script.lookup),
  }
  return {
    kind: 'external',
    callTimeoutMs: 0,
    send: () => Promise.reject(new Error('a worker of the model calls the provider itself')),
    lookup: flavour === 'stepped' ? null : lookup,
    ...(flavour === 'stepped' && { stepLookups: new Map(STEPS.map((step) => [step, lookup])) }),
  }
}

export const makeTypes = (name: string, provider: Provider, script: Script): Map<Flavour, OperationType> =>
  new Map(
    FLAVOURS.map((flavour) => [
      flavour,
      plantedType(`${flavour}-${name}`, {
        steps: stepsOf(flavour),
        concurrency: CONCURRENCY,
        parallelism: 2,
        batch: { maxItems: CONCURRENCY, maxMs: 1_000 },
        // no wait: what waits is due at once
        retry: { maxAttempts: MAX_ATTEMPTS, baseMs: 0, maxMs: 0 },
        onAbsent: flavour === 'by-hand' ? 'case' : 'retry',
        providerIdempotentMs: flavour === 'idempotent' ? 3_600_000 : 0,
        effectKey: ({ input }) => ({ key: targetOf(input) }),
        ...(flavour === 'batch'
          ? { effect: 'transactional', executor: { kind: 'transactional', runBatch: async () => undefined } }
          : { executor: external(provider, script, flavour) }),
      }),
    ]),
  )
