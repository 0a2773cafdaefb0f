/**
 * The ordered steps of an item. Each is an effect of its own, with its own key, so the registry answers for each of them
 * whether it may be sent; an item is applied when its last step is. A type without steps has the one step `''`.
 */

export const STEPS_MAX = 8
export const STEP_NAME = /^[a-z][a-z0-9_-]{0,31}$/

/** One step as its author describes it. */
export interface StepRule {
  name: string
  /** It cannot be taken back. */
  irreversible?: boolean | undefined
}

export interface StepFault {
  index: number
  field: 'name' | 'irreversible'
  detail: string
}

/** What is wrong with the order of steps, or null. After an irreversible one nothing may follow that can still fail. */
export const stepFault = (steps: readonly StepRule[]): StepFault | null => {
  for (const [index, { name, irreversible }] of steps.entries()) {
    if (steps.findIndex((other) => other.name === name) < index) {
      return { index, field: 'name', detail: `"${name}" is the name of an earlier step too` }
    }
    if (irreversible && index < steps.length - 1) {
      return {
        index,
        field: 'irreversible',
        detail: `only the last step may be irreversible, and "${steps[index + 1]?.name}" comes after "${name}"`,
      }
    }
  }
  return null
}

/**
 * The effect key of a step: that of its item, and the step's name behind a `/`. As no name has a `/`, two items of a type
 * cannot meet in one key unless their own keys do.
 */
export const stepKey = (itemEffectKey: string, step: string): string =>
  step === '' ? itemEffectKey : `${itemEffectKey}/${step}`

/** What the longest step adds to an effect key, in bytes: names are ASCII. */
export const stepKeyBytes = (steps: readonly string[]): number =>
  steps.length === 0 ? 0 : 1 + Math.max(...steps.map((step) => step.length))

/** Whether an item with these steps can stand at `step`; without steps it can stand at `''` only. */
export const hasStep = (steps: readonly string[], step: string): boolean =>
  steps.length === 0 ? step === '' : steps.includes(step)
