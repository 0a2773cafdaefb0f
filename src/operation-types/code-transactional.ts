/** Batches of a code type. A throw rolls the batch back; the engine then finds the item that caused it. */
import { z } from 'zod'
import { parseCompensationKey } from '../domain/compensation.ts'
import type { BatchItem, BatchResult, BatchRun, Executor, TransactionSql } from '../domain/operation-type.ts'
import { settledOutcomes } from './code-external.ts'
import type { TypedBatchCompensation, TypedBatchItem } from './handlers.ts'

interface TransactionalDefinition {
  input: z.ZodType
  runBatch: BatchHandler<TypedBatchItem<unknown>>
  compensateBatch?: BatchHandler<TypedBatchCompensation<unknown>>
}

type BatchHandler<Item> = (tx: TransactionSql, items: Item[], run: BatchRun) => Promise<BatchResult[] | undefined>

const key = z.string()
const [applied, skipped, failed] = settledOutcomes
const batchResults = z
  .array(z.discriminatedUnion('state', [applied.extend({ key }), skipped.extend({ key }), failed.extend({ key })]))
  .optional()

type TransactionalExecutor = Extract<Executor, { kind: 'transactional' }>

export const transactionalExecutor = (definition: TransactionalDefinition): TransactionalExecutor =>
  executorOf(definition.input, 'runBatch', (tx, items, run) => definition.runBatch(tx, items, run))

/** Null: the type says nothing of how its effects are taken back. */
export const transactionalCompensator = (definition: TransactionalDefinition): TransactionalExecutor | null => {
  const { compensateBatch } = definition
  if (compensateBatch === undefined) return null
  return executorOf(definition.input, 'compensateBatch', (tx, items, run) =>
    compensateBatch.call(definition, tx, items.map(ofUndone), run),
  )
}

/** The engine knows a compensation by its own key only. */
const ofUndone = (item: TypedBatchItem<unknown>): TypedBatchCompensation<unknown> => {
  const undone = parseCompensationKey(item.effectKey)
  if (undone === null) throw new Error(`"${item.effectKey}" is the key of no compensation`)
  return { ...item, effectKey: undone.effectKey, compensationKey: item.effectKey }
}

const executorOf = (
  schema: z.ZodType,
  name: 'runBatch' | 'compensateBatch',
  handler: BatchHandler<TypedBatchItem<unknown>>,
): TransactionalExecutor => ({
  kind: 'transactional',
  runBatch: async (tx, items, run) => {
    const { valid, rejected } = parseItems(schema, items)
    const answer = valid.length === 0 ? undefined : await handler(tx, valid, run)
    const results = batchResults.safeParse(answer)
    if (!results.success) {
      throw new Error(`${name} gave no valid results: ${results.error.issues[0]?.message}`, { cause: results.error })
    }
    assertKeys(name, valid, results.data ?? [])
    if (results.data === undefined && rejected.length === 0) return undefined
    return [...(results.data ?? []), ...rejected]
  },
})

/** Inputs were valid at submission; a newer version of the type may see that differently. */
const parseItems = (schema: z.ZodType, items: BatchItem[]) => {
  const valid: TypedBatchItem<unknown>[] = []
  const rejected: BatchResult[] = []
  for (const item of items) {
    const input = schema.safeParse(item.input)
    if (input.success) valid.push({ ...item, input: input.data })
    else {
      rejected.push({
        key: item.key,
        state: 'failed',
        failureClass: 'validation_rejected',
        reasonCode: 'INVALID_INPUT',
        message: 'the input no longer fits the type',
      })
    }
  }
  return { valid, rejected }
}

const assertKeys = (name: string, items: readonly { key: string }[], results: readonly { key: string }[]): void => {
  const known = new Set(items.map((item) => item.key))
  for (const result of results) {
    // Deleted when seen, so that a second result for one item is as unknown as a foreign key.
    if (!known.delete(result.key)) throw new Error(`${name} gave a result for an item it was not given, or two`)
  }
}
