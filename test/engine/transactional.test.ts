import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { BatchItem, OperationType, TransactionSql } from '../../src/domain/operation-type.ts'
import { plantedType } from '../support/planted-operation.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'

type Handler = (tx: TransactionSql, items: BatchItem[]) => Promise<void>

/** What the type "place" does with a batch; each test sets its own. */
let handler: Handler = async () => {}
const write: Handler = async (tx, items) => {
  for (const { key, input } of items) {
    await tx`insert into place (key, number, name) values (${key}, ${String((input as { number: string }).number)}::int,
      ${String((input as { name: string }).name)})`
  }
}
const type: OperationType = plantedType('place', {
  effect: 'transactional',
  leaseMs: 2_000,
  batch: { maxItems: 10, maxMs: 1_000 },
  retry: { maxAttempts: 3, baseMs: 10, maxMs: 20 },
  effectKey: ({ key, rootOperationId }) => ({ key: `${rootOperationId}:${key}` }),
  executor: {
    kind: 'transactional',
    runBatch: async (tx, items) => {
      await handler(tx, items)
      return undefined
    },
  },
})

let service: TestService
let engine: TestEngine
beforeAll(async () => {
  service = await openTestService({ types: [type] })
  await service.database.query(
    ({ sql }) => sql`create table place (key text not null, number int unique, name varchar(5) check (name <> 'no'))`,
  )
  engine = await startTestEngine({ url: service.url, types: [type] })
})
afterAll(async () => {
  await engine.drain()
  await service.close()
})

let numbers = 0
const good = (key: string) => ({ key, input: { number: String(++numbers), name: 'fine' } })
const written = async (prefix: string): Promise<string[]> => {
  const rows = await service.database.query(
    ({ sql }) => sql<{ key: string }>`select key from place where key like ${`${prefix}%`} order by key`,
  )
  return rows.map((row) => row.key)
}

describe('a transactional type', () => {
  it('finds the items that a constraint refuses; the others of their batch are applied once', async () => {
    handler = write
    const first = good('b-00')
    const items = [
      first,
      ...Array.from({ length: 12 }, (_, i) => good(`b-${String(i + 1).padStart(2, '0')}`)),
      { key: 'b-nan', input: { number: 'many', name: 'fine' } },
      { key: 'b-long', input: { number: '-1', name: 'far too long' } },
      { key: 'b-twice', input: first.input },
      { key: 'b-check', input: { number: '-2', name: 'no' } },
      ...Array.from({ length: 6 }, (_, i) => good(`b-${i + 20}`)),
    ]
    const { id } = await service.submit('place', items)
    const view = await untilStatus(service, id, 'partially_succeeded')
    expect(view.counts).toMatchObject({ total: 23, applied: 19, failed: 4 })
    expect(view.failures).toEqual({ validation_rejected: 2, conflict: 2 })
    const found = await service.items(id)
    expect(['b-nan', 'b-long', 'b-twice', 'b-check'].map((key) => found.get(key))).toMatchObject([
      { failureClass: 'validation_rejected', reasonCode: '22P02', attempt: 1 },
      { failureClass: 'validation_rejected', reasonCode: '22001', attempt: 1 },
      { failureClass: 'conflict', reasonCode: '23505', attempt: 1 },
      { failureClass: 'conflict', reasonCode: '23514', attempt: 1 },
    ])
    expect(await written('b-')).toEqual(
      [...found.values()]
        .filter((item) => item.state === 'applied')
        .map((item) => item.key)
        .sort(),
    )
    await expectConserved(service, id)
  })

  it.each(['40001', '40P01', '55P03', '57014', '53200', '08006'])(
    'takes %s for a fault of the database: the batch is repeated, and no item is charged',
    async (code) => {
      let faults = 0
      // more often than one transaction is repeated by itself
      handler = async (tx, items) => {
        await write(tx, items)
        if (faults++ < 9) {
          await tx`select set_config('test.code', ${code}, true)`
          await tx`do $$ begin raise exception 'induced' using errcode = current_setting('test.code'); end $$`
        }
      }
      const { id } = await service.submit(
        'place',
        Array.from({ length: 15 }, (_, i) => good(`f-${code}-${i}`)),
      )
      const view = await untilStatus(service, id, 'succeeded')
      expect(view.counts).toMatchObject({ applied: 15, failed: 0 })
      expect(faults).toBeGreaterThan(9)
      const ledger = await service.ledger(id)
      expect(ledger.map((entry) => `${entry.attempt} ${entry.state}`)).toEqual(Array(15).fill('1 applied'))
      expect(await written(`f-${code}-`)).toHaveLength(15)
      await expectConserved(service, id)
    },
  )

  it('a handler that swallows a failed statement commits nothing', async () => {
    let swallowed = 0
    handler = async (tx, items) => {
      await write(tx, items)
      if (swallowed++ > 0) return
      await tx`select 1 / 0`.catch(() => {})
    }
    const { id } = await service.submit('place', [good('s-1')])
    await untilStatus(service, id, ['succeeded', 'failed'])
    expect(await written('s-')).toHaveLength((await service.view(id)).counts.applied)
    await expectConserved(service, id)
  })

  it.each(['commit', 'rollback', '/* so */ end; ', 'rollback and chain'])(
    'a handler cannot end its transaction by %s: nothing is called applied that is not there, and nothing is there twice',
    async (statement) => {
      const prefix = `e-${statement.length}-`
      const text = Object.assign([statement], { raw: [statement] })
      const told: string[] = []
      handler = async (tx, items) => {
        await write(tx, items)
        // its second attempt is sound
        if (items.every(({ attempt }) => attempt > 1)) return
        await tx(text).catch((error: Error) => told.push(error.message))
        await tx`select 1`
      }
      const { id } = await service.submit('place', [good(`${prefix}1`), good(`${prefix}2`)])
      const view = await untilStatus(service, id, 'succeeded')
      expect(view.counts).toMatchObject({ applied: 2, failed: 0 })
      // the two together, then each of them alone
      expect(told).toEqual(Array(3).fill(`a handler must not end its transaction: ${statement.trim()}`))
      expect(await written(prefix)).toEqual([`${prefix}1`, `${prefix}2`])
      await expectConserved(service, id)
    },
  )

  it.each([
    ['do $$ begin commit; end $$', '2D000'],
    ['select 1; commit', '42601'],
  ])('a handler cannot end it from within a statement: %s', async (statement, code) => {
    const text = Object.assign([statement], { raw: [statement] })
    const prefix = `w-${code}-`
    handler = async (tx, items) => {
      await write(tx, items)
      await tx(text)
    }
    const { id } = await service.submit('place', [good(`${prefix}1`), good(`${prefix}2`)])
    await untilStatus(service, id, 'failed')
    expect([...(await service.items(id)).values()]).toMatchObject(Array(2).fill({ state: 'failed', reasonCode: code }))
    expect(await written(prefix)).toEqual([])
    await expectConserved(service, id)
  })

  it('a handler may use savepoints of its own, whatever it calls them, also where it fails', async () => {
    handler = async (tx, items) => {
      await write(tx, items)
      await tx`savepoint batch`
      await tx`select 1 / 0`.catch(() => {})
      await tx`rollback to savepoint batch`
      if (items.length > 1) throw new Error('one by one, please')
    }
    const { id } = await service.submit('place', [good('sp-1'), good('sp-2')])
    expect((await untilStatus(service, id, ['succeeded', 'failed'])).counts).toMatchObject({ applied: 2 })
    expect(await written('sp-')).toEqual(['sp-1', 'sp-2'])
    await expectConserved(service, id)
  })

  it('a cancel stops it at a batch boundary: committed batches stay once, nothing is applied after the acknowledgement', async () => {
    let batches = 0
    let open: () => void = () => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    handler = async (tx, items) => {
      await write(tx, items)
      if (++batches === 3) await gate
    }
    const { id } = await service.submit(
      'place',
      Array.from({ length: 50 }, (_, i) => good(`c-${String(i).padStart(2, '0')}`)),
    )
    await eventually('the third batch is at work', () => batches === 3)
    const { operation } = await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    expect(operation.status).toBe('cancel_requested')
    await eventually('it was acknowledged', async () => (await service.view(id)).cancel.acknowledgedAt !== null)
    open()
    const view = await untilStatus(service, id, 'cancelled')
    expect(view.counts).toMatchObject({ applied: 20, unprocessed: 30, failed: 0 })
    expect(view.cancel.appliedAfterRequest).toBe(0)
    expect(await written('c-')).toHaveLength(20)
    expect(batches).toBe(3)
    const late = await service.database.query(
      ({ sql }) => sql`select 1 from ledger_entries
        where operation_id = ${id}::uuid and observed_at > ${view.cancel.requestedAt}::timestamptz`,
    )
    expect(late).toEqual([])
    await expectConserved(service, id)
  })

  it('a handler that does not come back loses its batch, not its neighbours', async () => {
    const stalling: OperationType = {
      ...type,
      name: 'stalling',
      stallMs: 300,
      retry: { ...type.retry, maxAttempts: 1 },
    }
    const own = await openTestService({ types: [stalling] })
    await own.database.query(({ sql }) => sql`create table place (key text, number int, name text)`)
    const runner = await startTestEngine({ url: own.url, types: [stalling] })
    try {
      handler = async (tx, items) => {
        await write(tx, items)
        if (items.some((item) => item.key === 'hangs')) await new Promise(() => {})
      }
      const { id } = await own.submit('stalling', [good('one'), { ...good('hangs'), key: 'hangs' }, good('two')])
      const view = await untilStatus(own, id, 'partially_succeeded')
      expect(view.counts).toMatchObject({ applied: 2, failed: 1 })
      expect((await own.items(id)).get('hangs')).toMatchObject({ reasonCode: 'HANDLER_STALLED' })
      await expectConserved(own, id)
    } finally {
      await runner.drain()
      await own.close()
    }
  })
})
