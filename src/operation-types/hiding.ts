/**
 * A type whose executors let nothing through that must not be shown: whatever a provider answers or a handler throws, secrets
 * and masked members are taken out before it can reach the ledger, a log or a message.
 */
import { type Hide, hiderOf, hideTexts, maskedValues } from '../domain/hidden-values.ts'
import type { EffectLookup, Executor, Json, OperationType } from '../domain/operation-type.ts'

/** Of calls with these inputs. */
type HideOf = (inputs: readonly Json[]) => Hide

/** `secrets`: asked at each call, as a type may read one later. */
export const withHidden = (type: OperationType, secrets: () => readonly string[]): OperationType => {
  const hideOf: HideOf = (inputs) => {
    let hide: Hide | null = null
    return (text) => {
      hide ??= hiderOf([...secrets(), ...inputs.flatMap((input) => maskedValues(input, type.mask))])
      return hide(text)
    }
  }
  return {
    ...type,
    executor: guarded(type.executor, hideOf),
    compensator: type.compensator === null ? null : guarded(type.compensator, hideOf),
  }
}

const guarded = (executor: Executor, hideOf: HideOf): Executor => {
  switch (executor.kind) {
    case 'external': {
      const { lookup, stepLookups } = executor
      return {
        ...executor,
        send: async (call) => {
          const { outcome, downstreamError } = await executor.send(call)
          const hide = hideOf([call.input])
          return { outcome: outcome.state === 'unsent' ? outcome : hideTexts(outcome, hide), downstreamError }
        },
        lookup: lookup && guardedLookup(lookup, hideOf),
        ...(stepLookups && {
          stepLookups: new Map([...stepLookups].map(([step, one]) => [step, guardedLookup(one, hideOf)])),
        }),
      }
    }
    case 'transactional':
      return {
        ...executor,
        runBatch: async (tx, items, run) => {
          const hide = hideOf(items.map(({ input }) => input))
          try {
            const results = await executor.runBatch(tx, items, run)
            return results?.map((result) => hideTexts(result, hide))
          } catch (error) {
            throw withHiddenMessage(error, hide)
          }
        },
      }
    case 'artifact':
      return {
        ...executor,
        writeChunk: (chunk, run) => guardedBytes(executor.writeChunk(chunk, run), hideOf([chunk.input])),
      }
  }
}

const guardedLookup = (lookup: EffectLookup, hideOf: HideOf): EffectLookup => ({
  ...lookup,
  find: async (call) => hideTexts(await lookup.find(call), hideOf([call.input])),
})

async function* guardedBytes(
  bytes: AsyncIterable<Uint8Array | string>,
  hide: Hide,
): AsyncGenerator<Uint8Array | string> {
  try {
    yield* bytes
  } catch (error) {
    throw withHiddenMessage(error, hide)
  }
}

/** The same error: what it is, and its code, decide what follows. */
const withHiddenMessage = (error: unknown, hide: Hide): unknown => {
  if (!(error instanceof Error)) return typeof error === 'string' ? hide(error) : error
  error.message = hide(error.message)
  if (error.stack !== undefined) error.stack = hide(error.stack)
  return error
}
