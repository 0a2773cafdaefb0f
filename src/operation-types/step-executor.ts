import { assertThat } from '../domain/assert.ts'
import type { CallReport, EffectLookup, Executor, SendCall } from '../domain/operation-type.ts'

/** An effect of an item: a step, or, with the step `''`, the only one. */
export interface StepHandlers {
  step: string
  send(call: SendCall): Promise<CallReport>
  lookup: EffectLookup | null
}

/** One executor for all effects of an item; it picks by the call's step, which is one of these. */
export const stepExecutor = (
  effects: readonly StepHandlers[],
  callTimeoutMs: number,
): Extract<Executor, { kind: 'external' }> => {
  const byStep = new Map(effects.map((effect) => [effect.step, effect]))
  return {
    kind: 'external',
    callTimeoutMs,
    send: async (call) => {
      const effect = byStep.get(call.step)
      assertThat(effect !== undefined, `a call of the step "${call.step}", which ${call.type} does not have`)
      return effect.send(call)
    },
    lookup: byStep.get('')?.lookup ?? null,
    stepLookups: new Map(
      effects.flatMap(({ step, lookup }) => (step === '' || lookup === null ? [] : [[step, lookup] as const])),
    ),
  }
}
