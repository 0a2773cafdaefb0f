/** Callbacks of a code type: its secrets, and its own reading of an event. */
import { z } from 'zod'
import type { CallbackReceiver, Json } from '../domain/operation-type.ts'
import { TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import { usableRef } from './answers.ts'
import { openSecrets, openVerifier } from './callback-signature.ts'
import { canBeEffectKey } from './effect-key.ts'
import type { CodeCallback } from './handlers.ts'

const statement = z.object({
  effectKey: z.string(),
  state: z.enum(['applied', 'absent']),
  effectRef: z.string().optional(),
})

/** A `read` that throws or answers something else is a fault of the type: the event is not taken, and is sent again. */
export const codeCallback = ({ secrets, tolerance_seconds, read }: CodeCallback): CallbackReceiver => ({
  verify: openVerifier(
    openSecrets(
      [secrets].flat().flatMap((text) => text.split(/\s+/).filter((secret) => secret !== '')),
      'callback.secrets',
    ),
    tolerance_seconds ?? TYPE_LIMITS.callbackToleranceSeconds.default,
  ),
  read(event: Json) {
    const answer = read(event)
    if (answer === null) return null
    const { effectKey, state, effectRef } = statement.parse(answer)
    if (!canBeEffectKey(effectKey)) return null
    const usable = usableRef(effectRef)
    return { effectKey, state, ...(usable === undefined ? {} : { effectRef: usable }) }
  },
})
