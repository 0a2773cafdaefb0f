import { sanitiseText } from '../domain/failure.ts'
import type { BatchResult, BatchRun, OperationType, TransactionSql } from '../domain/operation-type.ts'
import { failureFate } from '../services/outcome-reports.ts'
import type { Parameter, TransactionConnection } from '../storage/connection.ts'
import { abortsBatch, faultCode } from '../storage/database-faults.ts'
import type { BatchOutcome } from '../storage/run/transactional.ts'
import { endsTransaction } from '../storage/transaction-end.ts'
import type { BatchEntry, TransactionalExecutor } from './transactional.ts'

const MESSAGE_MAX = 500
/** A name that no handler gives to a savepoint of its own: rolled back to, that one would keep what was done before it. */
const SAVEPOINT = 'opledger_batch'

interface BatchWork {
  connection: TransactionConnection
  type: OperationType
  executor: TransactionalExecutor
  items: readonly BatchEntry[]
  run: BatchRun
}

class HandlerStalled extends Error {
  override readonly name = 'HandlerStalled'
}

/**
 * Runs the handler on a batch within the caller's transaction. A failure is rolled back to a savepoint and the batch is
 * halved, until the failing items stand alone; the others keep what they did. What speaks of the database, and not of the
 * items (see `abortsBatch`), is thrown on.
 */
export const executeBatch = async (work: BatchWork): Promise<BatchOutcome[]> => {
  const { items } = work
  const { script } = work.connection
  if (items.length === 0) return []
  // leaves with the handler's first statement: it fails with the connection only, and then so does that
  script(`savepoint ${SAVEPOINT}`).catch(() => {})
  try {
    const { results, isSound } = await callHandler(work)
    const released = script(`release savepoint ${SAVEPOINT}`)
    // as a rule it leaves with the next statement, as the savepoint did; it is waited for where it may fail, which is where a
    // handler has caught what made its transaction void: the batch is halved for that too
    if (isSound) released.catch(() => {})
    else await released
    return items.map((item) => outcome(work.type, item, results.get(item.key)))
  } catch (error) {
    if (abortsBatch(error)) throw error
    await script(`rollback to savepoint ${SAVEPOINT}`)
    await script(`release savepoint ${SAVEPOINT}`)
    const [item] = items
    if (items.length === 1 && item) return [failedOutcome(work.type, item, error)]
    const middle = Math.ceil(items.length / 2)
    const first = await executeBatch({ ...work, items: items.slice(0, middle) })
    const second = await executeBatch({ ...work, items: items.slice(middle) })
    return [...first, ...second]
  }
}

interface Handled {
  results: Map<string, BatchResult>
  /** Whether the transaction is certain to stand: no statement of the handler has failed, or is under way. */
  isSound: boolean
}

const callHandler = async ({ connection, type, executor, items, run }: BatchWork): Promise<Handled> => {
  let over = false
  /** Statements that speak against it. */
  let unsound = 0
  let refusal: Error | null = null
  // a handler that hangs, or leaves statements unawaited, must not touch the transaction afterwards; and none may end it: what it
  // did would be there without its entries
  const tx: TransactionSql = (strings, ...parameters) => {
    if (over) return refused(new Error('the transaction of this batch is over'))
    if (endsTransaction(strings.join('?'))) {
      refusal = new Error(`a handler must not end its transaction: ${strings.join('?').trim()}`)
      return refused(refusal)
    }
    unsound++
    const answer = connection.sql(strings, ...(parameters as Parameter[]))
    answer.then(
      () => {
        unsound--
      },
      () => {}, // for the handler to see, or for nobody
    )
    return answer
  }
  let timer: NodeJS.Timeout | undefined
  try {
    const results = await Promise.race([
      executor.runBatch(
        tx,
        items.map(({ key, input, effectKey, attempt }) => ({ key, input, effectKey, attempt })),
        run,
      ),
      new Promise<never>((_, reject) => {
        timer = setTimeout(
          () => reject(new HandlerStalled(`the handler did not come back within ${type.stallMs} ms`)),
          type.stallMs,
        )
      }),
    ])
    if (refusal) throw refusal // also where the handler has caught it
    return { results: new Map((results ?? []).map((result) => [result.key, result])), isSound: unsound === 0 }
  } finally {
    over = true
    clearTimeout(timer)
  }
}

/** For the handler to see, or for nobody. */
const refused = (error: Error): Promise<never> => {
  const answer = Promise.reject(error)
  answer.catch(() => {})
  return answer
}

const outcome = (type: OperationType, item: BatchEntry, result: BatchResult | undefined): BatchOutcome => {
  const applied: BatchOutcome = {
    ord: item.ord,
    item: 'applied',
    failureClass: null,
    reasonCode: null,
    message: null,
    effectRef: null,
    retryMs: null,
    fingerprint: null,
  }
  if (result === undefined) return applied
  switch (result.state) {
    case 'applied':
      return { ...applied, effectRef: result.effectRef ?? null }
    case 'skipped':
      return { ...applied, item: 'skipped', reasonCode: result.reasonCode, effectRef: result.effectRef ?? null }
    case 'failed': {
      const failure = {
        failureClass: result.failureClass,
        reasonCode: result.reasonCode ?? null,
        message: result.message === undefined ? null : sanitiseText(result.message, MESSAGE_MAX),
      }
      return { ...applied, item: 'failed', ...failure, ...failureFate(type, failure, item) }
    }
  }
}

/** An error of one item alone: the data is wrong (class 22), it conflicts with other data (23), or the code failed. */
const failedOutcome = (type: OperationType, item: BatchEntry, error: unknown): BatchOutcome => {
  const code = faultCode(error)
  const failure = {
    failureClass: code.startsWith('22')
      ? ('validation_rejected' as const)
      : code.startsWith('23')
        ? ('conflict' as const)
        : ('transient' as const),
    reasonCode:
      error instanceof HandlerStalled ? 'HANDLER_STALLED' : /^[0-9A-Z]{5}$/.test(code) ? code : 'HANDLER_ERROR',
    message: sanitiseText(error instanceof Error ? error.message : String(error), MESSAGE_MAX),
  }
  return { ord: item.ord, item: 'failed', ...failure, effectRef: null, ...failureFate(type, failure, item) }
}
