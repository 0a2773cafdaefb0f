/** `http.callback` of a type file: which secrets sign, where an event names its effect, and what it says of it. */

import type { CallbackDefinition } from '../domain/http-definition.ts'
import { readPointer, textOf } from '../domain/json-pointer.ts'
import type { CallbackReceiver, CallbackStatement, Json } from '../domain/operation-type.ts'
import { DefinitionError, TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import { usableRef } from './answers.ts'
import { openSecrets, openVerifier } from './callback-signature.ts'
import { canBeEffectKey } from './effect-key.ts'
import type { TemplateScope } from './placeholders.ts'
import { compileAt } from './request-template.ts'

const SECRET_FIELD = 'http.callback.secret'

/** Throws a DefinitionError that names the field, and never the secret. */
export const compileCallback = (definition: CallbackDefinition, scope: TemplateScope): CallbackReceiver => ({
  verify: openVerifier(
    openSecrets(secretsOf(definition.secret, scope), SECRET_FIELD),
    definition.tolerance_seconds ?? TYPE_LIMITS.callbackToleranceSeconds.default,
  ),
  read: (event) => readEvent(definition, event),
})

/** A secret's value may hold several, and several may stand side by side: then all of them are accepted (rotation). */
const secretsOf = (text: string, scope: TemplateScope): string[] => {
  const parts = compileAt(SECRET_FIELD, text, scope)
  const values = parts.map((part) => {
    if (part.kind !== 'text') throw new DefinitionError(SECRET_FIELD, 'is the same for every item: use {secret.X}')
    if (part.origin === 'secret') return part.text
    if (part.text.trim() !== '') {
      throw new DefinitionError(SECRET_FIELD, 'must be {secret.X}, or several of them with spaces between')
    }
    return ' '
  })
  return values
    .join('')
    .split(/\s+/)
    .filter((secret) => secret !== '')
}

const readEvent = (definition: CallbackDefinition, event: Json): CallbackStatement | null => {
  const rule = definition.outcome.find(({ field, equals }) => {
    const value = readPointer(event, field)
    return equals.some((expected) => expected === value)
  })
  if (rule === undefined) return null
  const effectKey = textOf(readPointer(event, definition.effect_key))
  // a key that no effect can have names none of ours
  if (effectKey === undefined || !canBeEffectKey(effectKey)) return null
  const effectRef = rule.ref === undefined ? undefined : usableRef(textOf(readPointer(event, rule.ref)))
  return { effectKey, state: rule.state, ...(effectRef === undefined ? {} : { effectRef }) }
}
