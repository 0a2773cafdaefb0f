/** What may stand in the definition of a code type, checked when the process starts. */
import { z } from 'zod'
import type { EffectKind } from '../domain/operation-type.ts'
import {
  DefinitionError,
  policyShape,
  providerShape,
  STEPS_RANGE,
  stepShape,
  TYPE_LIMITS,
} from '../domain/operation-type-definition.ts'
import { parseDefinition } from './definition-issues.ts'

const isFunction = (value: unknown): boolean => typeof value === 'function'
const handler = z.custom<(...parameters: never[]) => Promise<unknown>>(isFunction, 'must be a function')
const inputSchema = z.custom<z.ZodType>(
  (value) => typeof value === 'object' && value !== null && '_zod' in value && 'safeParse' in value,
  'must be a zod 4 schema',
)
const lookupSchema = z.strictObject({
  after_ms: z.int().min(TYPE_LIMITS.lookupAfterMs.min).max(TYPE_LIMITS.lookupAfterMs.max).optional(),
  timeout_ms: z.int().min(TYPE_LIMITS.callTimeoutMs.min).max(TYPE_LIMITS.callTimeoutMs.max).optional(),
  find: handler,
})
const codeSchema = z.strictObject({
  ...policyShape,
  ...providerShape,
  input: inputSchema,
  effect_key: z.union([z.string().min(1).max(TYPE_LIMITS.textLength), handler]).optional(),
  timeout_ms: z.int().min(TYPE_LIMITS.callTimeoutMs.min).max(TYPE_LIMITS.callTimeoutMs.max).optional(),
  send: handler.optional(),
  runBatch: handler.optional(),
  lookup: lookupSchema.optional(),
  steps: z
    .array(z.strictObject({ ...stepShape, send: handler, lookup: lookupSchema.optional() }))
    .min(STEPS_RANGE.min)
    .max(STEPS_RANGE.max)
    .optional(),
  callback: z
    .strictObject({
      secrets: z.union([z.string(), z.array(z.string())], 'must be a secret, or a list of them'),
      tolerance_seconds: z
        .int()
        .min(TYPE_LIMITS.callbackToleranceSeconds.min)
        .max(TYPE_LIMITS.callbackToleranceSeconds.max)
        .optional(),
      read: handler,
    })
    .optional(),
  compensate: handler.optional(),
  plan: handler.optional(),
  writeChunk: handler.optional(),
  file: handler.optional(),
  artifactKey: handler.optional(),
  compensateLookup: lookupSchema.optional(),
  compensateBatch: handler.optional(),
})
export type CheckedDefinition = z.infer<typeof codeSchema>

/** Throws a DefinitionError that names the field. */
export const checkCodeDefinition = (definition: unknown): CheckedDefinition => {
  const checked = parseDefinition(codeSchema, definition)
  assertMembers(checked)
  return checked
}

/** The members that only some kinds of effect have. */
const MEMBERS = {
  external: {
    required: ['send'],
    allowed: ['send', 'steps', 'lookup', 'callback', 'compensate', 'compensateLookup', 'timeout_ms', 'effect_key'],
  },
  transactional: { required: ['runBatch'], allowed: ['runBatch', 'compensateBatch', 'effect_key'] },
  // a chunk has no meaning outside its operation, so its effect key is not for the author to choose
  artifact: {
    required: ['plan', 'writeChunk', 'file'],
    allowed: ['plan', 'writeChunk', 'file', 'artifactKey', 'timeout_ms'],
  },
} as const satisfies Record<EffectKind, { required: readonly Member[]; allowed: readonly Member[] }>
type Member =
  | 'runBatch'
  | 'send'
  | 'steps'
  | 'lookup'
  | 'callback'
  | 'compensate'
  | 'compensateLookup'
  | 'compensateBatch'
  | 'timeout_ms'
  | 'effect_key'
  | ArtifactMember
type ArtifactMember = 'plan' | 'writeChunk' | 'file' | 'artifactKey'

const assertMembers = (definition: CheckedDefinition): void => {
  if (definition.steps !== undefined) {
    const beside = (['send', 'lookup'] as const).find((member) => definition[member] !== undefined)
    if (beside !== undefined) throw new DefinitionError(beside, 'must not stand beside steps: each step has its own')
  }
  const { required, allowed }: { required: readonly Member[]; allowed: readonly Member[] } = MEMBERS[definition.effect]
  const missing = required.find(
    (member) => definition[member] === undefined && !(member === 'send' && definition.steps),
  )
  if (missing !== undefined) throw new DefinitionError(missing, `is required for effect ${definition.effect}`)
  const known = Object.values(MEMBERS).flatMap((members): readonly Member[] => members.allowed)
  const found = known.find((member) => !allowed.includes(member) && definition[member] !== undefined)
  if (found !== undefined) throw new DefinitionError(found, `has no meaning for effect ${definition.effect}`)
  if (definition.compensateLookup !== undefined && definition.compensate === undefined) {
    throw new DefinitionError('compensateLookup', 'has no meaning without compensate')
  }
}
