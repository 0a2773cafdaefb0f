/** The effect key of an item: the same target and the same intent give the same key, in whichever operation. */
import { isReservedKey, REGISTRY_KEY_BYTES_MAX } from '../domain/compensation.ts'
import { EFFECT_KEY_BYTES_MAX } from '../domain/effect.ts'
import type { InputIssue, Json } from '../domain/operation-type.ts'
import { DefinitionError } from '../domain/operation-type-definition.ts'
import { stepKeyBytes } from '../domain/steps.ts'
import { describePart, renderText, type Template, type TemplateScope } from './placeholders.ts'
import { compileAt } from './request-template.ts'

/** What is left for the key of an item whose effects are its steps. */
export const itemKeyBytesMax = (steps: readonly string[]): number => EFFECT_KEY_BYTES_MAX - stepKeyBytes(steps)

export interface EffectKeyItem {
  key: string
  input: Json
  rootOperationId: string
}
export type EffectKeyResult = { key: string } | { issue: InputIssue }

/** `{operation.id}` is the first operation of a replay chain, so that a replay has the keys of its original. */
export const compileEffectKey = (
  text: string | undefined,
  scope: TemplateScope,
  bytesMax = EFFECT_KEY_BYTES_MAX,
  mask: readonly string[] = [],
): ((item: EffectKeyItem) => EffectKeyResult) => {
  const template = compileAt('effect_key', text ?? '{type}:{operation.id}:{item.key}', scope)
  assertAllowed(template)
  assertShown(template, mask)
  return ({ key, input, rootOperationId }) => {
    const values = { input, itemKey: key, effectKey: null, operationId: rootOperationId }
    const rendered = renderText(template, values, String)
    if ('text' in rendered) return checkEffectKey(rendered.text, bytesMax)
    const { misfit, missing } = rendered
    const detail = missing
      ? 'is required: it is part of the effect key'
      : 'must be a string, number or boolean: it is part of the effect key'
    return { issue: { pointer: misfit.kind === 'input' ? misfit.pointer : '', detail } }
  }
}

/** Also for keys that code makes. */
export const checkEffectKey = (key: string, bytesMax = EFFECT_KEY_BYTES_MAX): EffectKeyResult => {
  const fault = isReservedKey(key)
    ? 'an effect key that only a compensation has (compensate:<number>:…)'
    : keyFault(key, bytesMax)
  return fault === null ? { key } : { issue: { pointer: '', detail: `makes ${fault}` } }
}

/** Whether an effect can have this key, be it an item's, a step's or a compensation's: what a provider tells us names ours. */
export const canBeEffectKey = (key: string): boolean => keyFault(key, REGISTRY_KEY_BYTES_MAX) === null

const keyFault = (key: string, bytesMax: number): string | null => {
  const bytes = Buffer.byteLength(key)
  if (bytes === 0) return 'an empty effect key'
  if (bytes > bytesMax) return `an effect key of ${bytes} bytes; at most ${bytesMax} are allowed`
  return /\0|\p{Surrogate}/u.test(key) ? 'an effect key with U+0000 or a lone surrogate' : null
}

/** Keys are shown to everybody who may see the operation. */
const assertShown = (template: Template, mask: readonly string[]): void => {
  for (const part of template) {
    if (part.kind !== 'input') continue
    const masked = mask.find((pointer) => isWithin(part.pointer, pointer) || isWithin(pointer, part.pointer))
    if (masked === undefined) continue
    throw new DefinitionError('effect_key', `{${describePart(part)}} cannot be part of it: mask hides ${masked}`)
  }
}

const isWithin = (pointer: string, outer: string): boolean => pointer === outer || pointer.startsWith(`${outer}/`)

const assertAllowed = (template: Template): void => {
  for (const part of template) {
    const isSecret = part.kind === 'text' && part.origin === 'secret'
    if (!isSecret && part.kind !== 'effect_key') continue
    throw new DefinitionError('effect_key', `{${isSecret ? 'secret.*' : describePart(part)}} cannot be part of it`)
  }
  if (!template.some((part) => part.kind !== 'text')) {
    throw new DefinitionError('effect_key', 'names no {item.key} or {input.*}: all items would be one effect')
  }
}
