/**
 * Operation types written in TypeScript. `defineOperationType` takes the same limits as a type file, an `input` as a
 * zod schema, and either `send` (external: one call per item), `steps` (external: several, in order), `runBatch`
 * (transactional: one transaction per batch), or `plan`, `writeChunk` and `file` (artifact: the chunks of a file, made of
 * the operation's `input`).
 *
 * Whatever goes wrong after `send` began may have had its effect, so a throw, a missing answer and a late one are all
 * `uncertain`. A handler that knows that nothing left the process throws `NothingSent`; that is retried. One that waits before
 * it writes asks `context.mayStart()` first: the run may have been stopped meanwhile (see handlers.ts).
 */
import { z } from 'zod'
import type {
  ArtifactFile,
  ArtifactRun,
  BatchResult,
  BatchRun,
  ChunkRun,
  InputIssue,
  Json,
  OperationType,
  PlannedChunk,
  SendOutcome,
  SendReport,
  TransactionSql,
} from '../domain/operation-type.ts'
import {
  assertSteps,
  DefinitionError,
  type PolicyDefinition,
  resolvePolicy,
  TYPE_LIMITS,
} from '../domain/operation-type-definition.ts'
import { artifactExecutor } from './code-artifact.ts'
import { codeCallback } from './code-callback.ts'
import { externalCompensator, externalExecutor } from './code-external.ts'
import { type CheckedDefinition, checkCodeDefinition } from './code-schema.ts'
import { transactionalCompensator, transactionalExecutor } from './code-transactional.ts'
import { checkEffectKey, compileEffectKey, type EffectKeyItem, itemKeyBytesMax } from './effect-key.ts'
import type {
  CodeCallback,
  CodeLookup,
  CodeStep,
  SendContext,
  TypedBatchCompensation,
  TypedBatchItem,
  TypedCall,
  TypedCompensation,
} from './handlers.ts'

export type CodeDefinition<Schema extends z.ZodType> = Omit<PolicyDefinition, 'effect'> & {
  input: Schema
  /** A template such as `grant:{input.role}:{item.key}`, or a function. Default: type : first operation : item. Not for artifacts. */
  effect_key?: string | ((item: { key: string; input: z.output<Schema>; rootOperationId: string }) => string)
} & (
    | ({
        effect: 'external'
        /** Of each call. */
        timeout_ms?: number
        callback?: CodeCallback
        /** Takes an applied effect back. Whatever goes wrong after it began is `uncertain`, as for `send`. */
        compensate?(call: TypedCompensation<z.output<Schema>>, context: SendContext): Promise<SendOutcome | SendReport>
        /** What became of an uncertain `compensate`; without it a person has to find out. `applied`: it was taken back. */
        compensateLookup?: CodeLookup<z.output<Schema>, TypedCompensation<z.output<Schema>>>
      } & (
        | {
            send(call: TypedCall<z.output<Schema>>, context: SendContext): Promise<SendOutcome | SendReport>
            lookup?: CodeLookup<z.output<Schema>>
            steps?: never
          }
        | {
            /** Instead of one effect an item: several, in this order. */
            steps: CodeStep<z.output<Schema>>[]
            send?: never
            lookup?: never
          }
      ))
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
    | {
        effect: 'artifact'
        /** Of one chunk. */
        timeout_ms?: number
        /** One bounded read: the chunks, in the order of the file, or what is wrong with the input. */
        plan(input: z.output<Schema>, run: ArtifactRun): Promise<PlannedChunk[] | { issues: InputIssue[] }>
        /** The bytes of a chunk, the same ones whenever it is asked: it is asked again after a failure or a replay. */
        writeChunk(chunk: PlannedChunk, run: ChunkRun): AsyncIterable<Uint8Array | string>
        file(input: z.output<Schema>): ArtifactFile
        /** A newer artifact of the type with the same key supersedes the older one. Default: none does. */
        artifactKey?(input: z.output<Schema>): string
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

export interface CodeContext {
  /** Used where the definition names no `code_version`. */
  codeVersion: string
}

/** Throws a DefinitionError that names the field. */
export const buildCodeType = (definition: OperationTypeDefinition, context: CodeContext): OperationType => {
  const checked = checkCodeDefinition(definition)
  const callTimeoutMs = timeoutOf(checked)
  const compensates = (checked.compensate ?? checked.compensateBatch) !== undefined
  if (checked.steps !== undefined) assertSteps(checked.steps, { field: 'steps', compensates })
  const policy = resolvePolicy(checked, { callTimeoutMs, compensates, steps: checked.steps })
  // The schema was checked at run time; the handlers' types were checked by the compiler in `defineOperationType`.
  const typed = definition as unknown as CodeDefinition<z.ZodType>
  return {
    ...policy,
    codeVersion: checked.code_version ?? context.codeVersion,
    inputSchema: jsonSchemaOf(checked.input),
    validateInput: (input) => inputIssues(checked.input, input),
    effectKey: effectKeyOf(typed, policy),
    ...executorsOf(typed, callTimeoutMs),
    callback: typed.effect === 'external' && typed.callback ? codeCallback(typed.callback) : null,
    close: async () => {},
  }
}

/** Null: what it does is not timed by itself. */
const timeoutOf = ({ effect, timeout_ms }: CheckedDefinition): number | null => {
  switch (effect) {
    case 'external':
      return timeout_ms ?? TYPE_LIMITS.callTimeoutMs.default
    case 'artifact':
      return timeout_ms ?? TYPE_LIMITS.chunkTimeoutMs.default
    case 'transactional':
      return null
  }
}

const executorsOf = (
  typed: CodeDefinition<z.ZodType>,
  timeoutMs: number | null,
): Pick<OperationType, 'executor' | 'compensator'> => {
  switch (typed.effect) {
    case 'external': {
      const callTimeoutMs = timeoutMs ?? TYPE_LIMITS.callTimeoutMs.default
      return {
        executor: externalExecutor(typed, callTimeoutMs),
        compensator: externalCompensator(typed, callTimeoutMs),
      }
    }
    case 'artifact':
      return {
        executor: artifactExecutor(typed, timeoutMs ?? TYPE_LIMITS.chunkTimeoutMs.default),
        compensator: null,
      }
    case 'transactional':
      return { executor: transactionalExecutor(typed), compensator: transactionalCompensator(typed) }
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

const effectKeyOf = (
  definition: CodeDefinition<z.ZodType>,
  { name, steps }: Pick<OperationType, 'name' | 'steps'>,
): OperationType['effectKey'] => {
  const source = definition.effect === 'artifact' ? undefined : definition.effect_key
  const bytesMax = itemKeyBytesMax(steps)
  if (typeof source !== 'function') {
    return compileEffectKey(source, { type: name, env: {}, secrets: () => undefined }, bytesMax)
  }
  return (item: EffectKeyItem) => {
    const parsed = definition.input.safeParse(item.input)
    if (!parsed.success) return { issue: { pointer: '', detail: 'is not valid, so no effect key can be made of it' } }
    return checkEffectKey(
      source({ key: item.key, input: parsed.data, rootOperationId: item.rootOperationId }),
      bytesMax,
    )
  }
}
