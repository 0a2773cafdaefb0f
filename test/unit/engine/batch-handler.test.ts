import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { AppError } from '../../../src/domain/errors.ts'
import type { BatchItem, BatchResult, OperationType, TransactionSql } from '../../../src/domain/operation-type.ts'
import { executeBatch } from '../../../src/engine/batch-handler.ts'
import type { TransactionConnection } from '../../../src/storage/connection.ts'
import { runnableItem, useTestClock } from '../../support/held-run.ts'
import { plantedType } from '../../support/planted-operation.ts'

const RUN = { tenantId: 7, operationId: 'op_1' }
const entry = (ord: number, attempt = 1) => ({ ...runnableItem(ord), attempt })
const APPLIED = {
  item: 'applied',
  failureClass: null,
  reasonCode: null,
  message: null,
  effectRef: null,
  retryMs: null,
  fingerprint: null,
}

type Handler = (tx: TransactionSql, items: BatchItem[], run: typeof RUN) => Promise<BatchResult[] | undefined>

/**
 * Runs a batch on a connection that notes its statements, and answers them as it is told to; `begun` are the items of each call
 * of the handler.
 */
const start = (
  items: ReturnType<typeof entry>[],
  handler: Handler,
  over: Partial<OperationType> = {},
  answer: (statement: string) => Promise<unknown> = async () => [],
) => {
  const statements: string[] = []
  const begun: string[][] = []
  const send = (statement: string): Promise<unknown> => {
    statements.push(statement)
    return answer(statement)
  }
  const connection = {
    sql: (strings: TemplateStringsArray, ...parameters: unknown[]) =>
      send(strings.join('?') + parameters.map((parameter) => ` ${parameter}`).join('')),
    script: send,
  } as unknown as TransactionConnection
  const outcomes = executeBatch({
    connection,
    type: plantedType('grant', over),
    executor: {
      kind: 'transactional',
      runBatch: (tx, batch, run) => {
        begun.push(batch.map(({ key }) => key))
        return handler(tx, batch, run)
      },
    },
    items,
    run: RUN,
  })
  return { outcomes, statements, begun }
}

const failing = (code?: string, message = 'no'): Error => Object.assign(new Error(message), code ? { code } : {})

describe('a batch', () => {
  test('of nothing is no statement', async () => {
    const { outcomes, statements } = start([], async () => [])
    expect([await outcomes, statements]).toEqual([[], []])
  })

  test('runs within a savepoint, and its handler is told the items and the run', async () => {
    const handler = vi.fn<Handler>(async (tx) => {
      await tx`select ${1}, ${'two'}`
      return undefined
    })
    const { outcomes, statements } = start([entry(1, 2), entry(2)], handler)
    expect(await outcomes).toEqual([
      { ord: 1, ...APPLIED },
      { ord: 2, ...APPLIED },
    ])
    expect(handler.mock.calls[0]?.slice(1)).toEqual([
      [
        { key: 'k1', input: { n: 1 }, effectKey: 'e1', attempt: 2 },
        { key: 'k2', input: { n: 2 }, effectKey: 'e2', attempt: 1 },
      ],
      RUN,
    ])
    expect(statements).toEqual(['savepoint opledger_batch', 'select ?, ? 1 two', 'release savepoint opledger_batch'])
  })

  test('what its handler says of an item is its outcome; of whom it says nothing is applied', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0.5)
    const { outcomes } = start(
      [1, 2, 3, 4, 5, 6].map((ord) => entry(ord)),
      async () => [
        { key: 'k1', state: 'applied', effectRef: 'r1' },
        { key: 'k2', state: 'skipped', reasonCode: 'THERE', effectRef: 'r2' },
        { key: 'k3', state: 'skipped', reasonCode: 'THERE' },
        {
          key: 'k4',
          state: 'failed',
          failureClass: 'validation_rejected',
          reasonCode: 'NO',
          message: `bad\u0000${'x'.repeat(600)}`,
        },
        { key: 'k5', state: 'failed', failureClass: 'transient' },
        { key: 'k6', state: 'applied' },
      ],
    )
    const rejected = { item: 'failed', failureClass: 'validation_rejected', reasonCode: 'NO' }
    expect(await outcomes).toEqual([
      { ord: 1, ...APPLIED, effectRef: 'r1' },
      { ord: 2, ...APPLIED, item: 'skipped', reasonCode: 'THERE', effectRef: 'r2' },
      { ord: 3, ...APPLIED, item: 'skipped', reasonCode: 'THERE' },
      { ord: 4, ...APPLIED, ...rejected, message: `bad\ufffd${'x'.repeat(496)}` },
      { ord: 5, ...APPLIED, item: 'failed', failureClass: 'transient', retryMs: 250 },
      { ord: 6, ...APPLIED },
    ])
    vi.restoreAllMocks()
  })
})

describe('a batch that fails', () => {
  test('is halved until the failing item stands alone; the others keep what they did', async () => {
    const { outcomes, begun, statements } = start(
      [1, 2, 3, 4, 5].map((ord) => entry(ord)),
      async (_tx, items) => {
        if (items.some(({ key }) => key === 'k2')) throw failing('23505')
        return undefined
      },
    )
    expect((await outcomes).map(({ ord, item }) => `${ord} ${item}`)).toEqual([
      '1 applied',
      '2 failed',
      '3 applied',
      '4 applied',
      '5 applied',
    ])
    expect(begun).toEqual([
      ['k1', 'k2', 'k3', 'k4', 'k5'],
      ['k1', 'k2', 'k3'],
      ['k1', 'k2'],
      ['k1'],
      ['k2'],
      ['k3'],
      ['k4', 'k5'],
    ])
    const failed = [
      'savepoint opledger_batch',
      'rollback to savepoint opledger_batch',
      'release savepoint opledger_batch',
    ]
    expect(statements.slice(0, 9)).toEqual([...failed, ...failed, ...failed])
    expect(statements.slice(9, 11)).toEqual(['savepoint opledger_batch', 'release savepoint opledger_batch'])
    expect(statements.filter((text) => text === 'savepoint opledger_batch')).toHaveLength(begun.length)
    expect(statements.filter((text) => text === 'release savepoint opledger_batch')).toHaveLength(begun.length)
  })

  test.each([
    ['wrong data', failing('22P02'), { failureClass: 'validation_rejected', reasonCode: '22P02' }],
    ['a conflict with other data', failing('23505'), { failureClass: 'conflict', reasonCode: '23505' }],
    ['a failure of the code', failing('42601'), { failureClass: 'transient', reasonCode: '42601' }],
    ['an error of its own', failing('NOT_FOUND'), { failureClass: 'transient', reasonCode: 'HANDLER_ERROR' }],
    ['a longer code', failing('X22P02'), { failureClass: 'transient', reasonCode: 'HANDLER_ERROR' }],
    ['a code with a tail', failing('22P02X'), { failureClass: 'validation_rejected', reasonCode: 'HANDLER_ERROR' }],
    ['no code at all', failing(), { failureClass: 'transient', reasonCode: 'HANDLER_ERROR' }],
  ])('for %s', async (_why, error, failure) => {
    const { outcomes } = start([entry(1)], () => Promise.reject(error))
    expect(await outcomes).toMatchObject([{ ord: 1, item: 'failed', ...failure, message: 'no', effectRef: null }])
  })

  test('for something that is no error says what it is, made fit for the database', async () => {
    const { outcomes } = start([entry(1)], () => Promise.reject(`a\u0000${'y'.repeat(600)}`))
    expect((await outcomes)[0]?.message).toBe(`a\ufffd${'y'.repeat(498)}`)
  })

  test('is tried again or not as any other failure', async () => {
    const last = start([entry(1, 3)], () => Promise.reject(failing()))
    expect((await last.outcomes)[0]).toMatchObject({
      retryMs: null,
      fingerprint: expect.stringMatching(/^[0-9a-f]{32}$/),
    })
    const first = start([entry(1, 1)], () => Promise.reject(failing()))
    expect((await first.outcomes)[0]).toMatchObject({ retryMs: expect.any(Number), fingerprint: null })
  })

  test.each([
    ['a deadlock', failing('40P01')],
    ['a server that goes down', failing('57P01')],
    ['a lost connection', new AppError('database-unavailable', 'away')],
  ])('for %s says nothing of its items: it is thrown on, and no statement follows', async (_why, error) => {
    const { outcomes, statements, begun } = start([entry(1), entry(2)], () => Promise.reject(error))
    await expect(outcomes).rejects.toBe(error)
    expect([statements, begun.length]).toEqual([['savepoint opledger_batch'], 1])
  })
})

describe('the end of its savepoint', () => {
  const never = new Promise<never>(() => {})
  const isRelease = (statement: string) => statement === 'release savepoint opledger_batch'
  /** A connection whose transaction is void after such a statement, until the savepoint is rolled back to. */
  const voidAfter = (fatal: RegExp) => {
    let isVoid = false
    return async (statement: string): Promise<unknown> => {
      if (isRelease(statement) && isVoid) throw failing('25P02', 'the transaction is void')
      if (statement.startsWith('rollback to')) isVoid = false
      if (fatal.test(statement)) isVoid = true
      if (statement === 'insert wrong') throw failing('23505')
      return statement === 'insert slowly' ? never : []
    }
  }

  test('is not waited for where all of a handler was answered', async () => {
    const { outcomes, statements } = start(
      [entry(1)],
      async (tx) => {
        await Promise.all([tx`select 1`, tx`do something`])
        return undefined
      },
      {},
      async (statement) => (isRelease(statement) ? never : []),
    )
    expect(await outcomes).toMatchObject([{ item: 'applied' }])
    expect(statements.at(-1)).toBe('release savepoint opledger_batch')
  })

  test('which is not waited for fails with the connection, and then so does what comes next', async () => {
    const { outcomes } = start(
      [entry(1)],
      async () => undefined,
      {},
      async (statement) => {
        if (isRelease(statement)) throw new AppError('database-unavailable', 'away')
        return []
      },
    )
    expect(await outcomes).toMatchObject([{ item: 'applied' }])
  })

  test.each<[string, (tx: TransactionSql) => Promise<unknown>]>([
    ['failed, though the handler has caught it', (tx) => tx`insert wrong`.catch(() => {})],
    ['failed before others that did not', (tx) => tx`insert wrong`.catch(() => tx`select 1`)],
    ['failed, though nobody has looked', async (tx) => void tx`insert wrong`.catch(() => {})],
    ['is still under way', async (tx) => void tx`insert slowly`],
  ])('is waited for where a statement %s: where it fails, so did the batch', async (_how, handle) => {
    const { outcomes } = start(
      [entry(1), entry(2)],
      async (tx, items) => {
        if (items.some(({ key }) => key === 'k2')) await handle(tx)
        return undefined
      },
      {},
      voidAfter(/^insert/),
    )
    expect(await outcomes).toMatchObject([
      { ord: 1, item: 'applied' },
      { ord: 2, item: 'failed', reasonCode: '25P02' },
    ])
  })
})

describe('a handler that ends its transaction', () => {
  test.each<[string, (tx: TransactionSql) => Promise<unknown>]>([
    ['and sees that it may not', (tx) => tx`commit`],
    ['and catches that it may not', (tx) => tx`rollback`.catch(() => {})],
    ['without a look at the answer', async (tx) => void tx`-- now\ncommit`],
  ])('%s has failed; nothing of that was sent', async (_how, handle) => {
    const { outcomes, statements } = start([entry(1), entry(2)], async (tx, items) => {
      if (items.some(({ key }) => key === 'k2')) await handle(tx)
      return undefined
    })
    expect(await outcomes).toMatchObject([
      { ord: 1, item: 'applied' },
      {
        ...{ ord: 2, item: 'failed', failureClass: 'transient', reasonCode: 'HANDLER_ERROR' },
        message: expect.stringMatching(/^a handler must not end its transaction: (-- now\n)?(commit|rollback)$/),
      },
    ])
    expect(statements.filter((text) => !text.includes('savepoint'))).toEqual([])
  })
})

describe('a handler', () => {
  let tick: (ms?: number) => Promise<void>
  beforeEach(() => {
    tick = useTestClock().tick
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('that does not come back has failed, and cannot touch the transaction any more', async () => {
    let transaction = null as unknown as TransactionSql
    const { outcomes, statements } = start(
      [entry(1)],
      (tx) => {
        transaction = tx
        return new Promise(() => {})
      },
      { stallMs: 2_000 },
    )
    await tick(1_999)
    expect(statements).toEqual(['savepoint opledger_batch'])
    await tick(1)
    expect(await outcomes).toMatchObject([
      {
        failureClass: 'transient',
        reasonCode: 'HANDLER_STALLED',
        message: 'the handler did not come back within 2000 ms',
      },
    ])
    const known = statements.length
    await expect(transaction`delete from everything`).rejects.toThrow('the transaction of this batch is over')
    void transaction`delete from everything` // and nobody has to look at that
    expect(statements).toHaveLength(known)
  })

  test('that comes back leaves no timer behind, and no statement that it forgot gets through', async () => {
    let transaction = null as unknown as TransactionSql
    const { outcomes } = start([entry(1)], async (tx) => {
      transaction = tx
      return []
    })
    await outcomes
    expect(vi.getTimerCount()).toBe(0)
    await expect(transaction`select 1`).rejects.toThrow('over')
  })
})
