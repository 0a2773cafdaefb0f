/**
 * Operation types written in TypeScript. `defineOperationType` takes the same limits as a type file, an `input` as a
 * zod schema, and either `send` (external: one call per item) or `runBatch` (transactional: one transaction per batch).
 *
 * Whatever goes wrong after `send` began may have had its effect, so a throw, a missing answer and a late one are all
 * `uncertain`. A handler that knows that nothing left the process throws `NothingSent`; that is retried.
 */
import { z } from 'zod'
import type {
  BatchResult,
  BatchRun,
  EffectKind,
  InputIssue,
  Json,
  OperationType,
  SendOutcome,
  SendReport,
  TransactionSql,
} from '../domain/operation-type.ts'
import {
  DefinitionError,
  type PolicyDefinition,
  policyShape,
  providerShape,
  resolvePolicy,
  TYPE_LIMITS,
} from '../domain/operation-type-definition.ts'
import { externalCompensator, externalExecutor } from './code-external.ts'
import { transactionalCompensator, transactionalExecutor } from './code-transactional.ts'
import { parseDefinition } from './definition-issues.ts'
import { checkEffectKey, compileEffectKey, type EffectKeyItem } from './effect-key.ts'
import type {
  CallContext,
  CodeLookup,
  TypedBatchCompensation,
  TypedBatchItem,
  TypedCall,
  TypedCompensation,
} from './handlers.ts'

export type CodeDefinition<Schema extends z.ZodType> = Omit<PolicyDefinition, 'effect'> & {
  input: Schema
  /** A template such as `grant:{input.role}:{item.key}`, or a function. Default: type : first operation : item. */
  effect_key?: string | ((item: { key: string; input: z.output<Schema>; rootOperationId: string }) => string)
} & (
    | {
        effect: 'external'
        timeout_ms?: number
        send(call: TypedCall<z.output<Schema>>, context: CallContext): Promise<SendOutcome | SendReport>
        lookup?: CodeLookup<z.output<Schema>>
        /** Takes an applied effect back. Whatever goes wrong after it began is `uncertain`, as for `send`. */
        compensate?(call: TypedCompensation<z.output<Schema>>, context: CallContext): Promise<SendOutcome | SendReport>
        /** What became of an uncertain `compensate`; without it a person has to find out. `applied`: it was taken back. */
        compensateLookup?: CodeLookup<z.output<Schema>, TypedCompensation<z.output<Schema>>>
      }
    | {
        effect: 'transactional'
        runBatch(
          tx: TransactionSql,
          items: TypedBatchItem<z.output<Schema>>[],
          run: BatchRun,
        ): Promise<BatchResult[] | undefined>
        /** Takes applied effects back, in the transaction that says so. */
        compensateBatch?(
          tx: TransactionSql,
          items: TypedBatchCompensation<z.output<Schema>>[],
          run: BatchRun,
        ): Promise<BatchResult[] | undefined>
      }
  )

/** Marks definitions across copies of this module, so that a type file cannot export just anything. */
const DEFINITION = Symbol.for('opledger.operation-type-definition')

export interface OperationTypeDefinition {
  readonly [DEFINITION]: true
  readonly name: string
}

/** Declares a type. It is checked when the registry loads it, with a message that names file, type and field. */
export const defineOperationType = <Schema extends z.ZodType>(
  definition: CodeDefinition<Schema>,
): OperationTypeDefinition => Object.freeze({ ...definition, [DEFINITION]: true as const })

export const isOperationTypeDefinition = (value: unknown): value is OperationTypeDefinition =>
  typeof value === 'object' && value !== null && DEFINITION in value

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
  compensate: handler.optional(),
  compensateLookup: lookupSchema.optional(),
  compensateBatch: handler.optional(),
})

export interface CodeContext {
  /** Used where the definition names no `code_version`. */
  codeVersion: string
}

/** Throws a DefinitionError that names the field. */
export const buildCodeType = (definition: OperationTypeDefinition, context: CodeContext): OperationType => {
  const checked = parseDefinition(codeSchema, definition)
  assertMembers(checked)
  const callTimeoutMs = checked.effect === 'external' ? (checked.timeout_ms ?? TYPE_LIMITS.callTimeoutMs.default) : null
  const policy = resolvePolicy(checked, {
    callTimeoutMs,
    compensates: (checked.compensate ?? checked.compensateBatch) !== undefined,
  })
  // The schema was checked at run time; the handlers' types were checked by the compiler in `defineOperationType`.
  const typed = definition as unknown as CodeDefinition<z.ZodType>
  return {
    ...policy,
    codeVersion: checked.code_version ?? context.codeVersion,
    inputSchema: jsonSchemaOf(checked.input),
    validateInput: (input) => inputIssues(checked.input, input),
    effectKey: effectKeyOf(typed, policy.name),
    ...executorsOf(typed, callTimeoutMs ?? TYPE_LIMITS.callTimeoutMs.default),
    close: async () => {},
  }
}

const executorsOf = (
  definition: CodeDefinition<z.ZodType>,
  callTimeoutMs: number,
): Pick<OperationType, 'executor' | 'compensator'> =>
  definition.effect === 'external'
    ? {
        executor: externalExecutor(definition, callTimeoutMs),
        compensator: externalCompensator(definition, callTimeoutMs),
      }
    : { executor: transactionalExecutor(definition), compensator: transactionalCompensator(definition) }

const MEMBERS_OF = {
  external: ['send', 'lookup', 'compensate', 'compensateLookup', 'timeout_ms'],
  transactional: ['runBatch', 'compensateBatch'],
} as const

const assertMembers = (definition: z.infer<typeof codeSchema>): void => {
  const required: Record<EffectKind, 'send' | 'runBatch' | null> = {
    external: 'send',
    transactional: 'runBatch',
    artifact: null,
  }
  const needed = required[definition.effect]
  if (needed !== null && definition[needed] === undefined) {
    throw new DefinitionError(needed, `is required for effect ${definition.effect}`)
  }
  const surplus = MEMBERS_OF[definition.effect === 'external' ? 'transactional' : 'external']
  const found = surplus.find((member) => definition[member] !== undefined)
  if (found !== undefined) throw new DefinitionError(found, `has no meaning for effect ${definition.effect}`)
  if (definition.compensateLookup !== undefined && definition.compensate === undefined) {
    throw new DefinitionError('compensateLookup', 'has no meaning without compensate')
  }
}

const jsonSchemaOf = (schema: z.ZodType): Json => {
  try {
    return z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Json
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error)
    throw new DefinitionError('input', `has no JSON Schema: ${detail}`, { cause: error })
  }
}

const inputIssues = (schema: z.ZodType, input: Json): InputIssue[] => {
  const parsed = schema.safeParse(input)
  if (parsed.success) return []
  return parsed.error.issues.map((issue) => ({
    pointer: issue.path.map((member) => `/${String(member).replaceAll('~', '~0').replaceAll('/', '~1')}`).join(''),
    detail: issue.message,
  }))
}

const effectKeyOf = (definition: CodeDefinition<z.ZodType>, type: string): OperationType['effectKey'] => {
  const source = definition.effect_key
  if (typeof source !== 'function') {
    return compileEffectKey(source, { type, env: {}, secrets: () => undefined })
  }
  return (item: EffectKeyItem) => {
    const parsed = definition.input.safeParse(item.input)
    if (!parsed.success) return { issue: { pointer: '', detail: 'is not valid, so no effect key can be made of it' } }
    return checkEffectKey(source({ key: item.key, input: parsed.data, rootOperationId: item.rootOperationId }))
  }
}
