/** The parts of an export: together they hold each entry once, in order, whatever the size of a part. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LedgerRange, LedgerSource } from '../../src/domain/ledger-export.ts'
import { ledgerSource } from '../../src/services/ledger-source.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantOperation } from '../support/planted-operation.ts'

let testDatabase: TestDatabase
let database: Database
const operations: string[] = []
let before: string
let after: string

const clock = async (): Promise<string> => {
  const [row] = await database.query(({ sql }) => sql<{ at: string }>`select clock_timestamp()::text as at`)
  return row?.at ?? ''
}
const plant = async (items: number, tenantId = 1): Promise<string> => {
  const id = await plantOperation(database, {
    tenantId,
    type: 'report',
    status: 'succeeded',
    items: Array.from({ length: items }, (_, item) => ({
      key: `i${item}`,
      entries: [{ state: 'failed' as const, failureClass: 'transient' as const }, { state: 'applied' as const }],
    })),
  })
  await database.query(({ sql }) => sql`update operations set started_at = created_at where id = ${id}::uuid`)
  return id
}

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 3, name: 'ledger export' })
  await plant(2)
  before = await clock()
  for (const items of [3, 5, 0, 4, 1]) operations.push(await plant(items))
  await plant(3, 2)
  after = await clock()
  await plant(2)
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

const entriesOf = async (tenantId: number, ranges: readonly LedgerRange[], itemsPerPart: number) => {
  const found: [string, number, number][] = []
  for (const range of ranges) {
    for await (const page of ledgerSource(database, itemsPerPart).read(tenantId, range)) {
      for (const { operationId, ord, seq } of page) found.push([operationId, ord, seq])
    }
  }
  return found
}
const planOf = async (source: LedgerSource, id: string): Promise<LedgerRange[]> => {
  const ranges = await source.planOperation(1, id)
  if (typeof ranges === 'string') throw new Error(`the operation is ${ranges}`)
  return ranges
}
const stored = (ids: readonly string[]) =>
  database.query(async ({ sql }) => {
    const rows = await sql<{ operation_id: string; ord: number; seq: number }>`
      select operation_id, ord, seq::float8 as seq from ledger_entries
      where operation_id::text = any(${`{${ids.join(',')}}`}::text[]) order by operation_id, ord, seq`
    return rows.map(({ operation_id, ord, seq }) => [operation_id, ord, seq])
  })

describe.each([1, 2, 3, 4, 5, 100])('in parts of %i items', (itemsPerPart) => {
  test('an operation', async () => {
    const [, id = ''] = operations
    const ranges = await planOf(ledgerSource(database, itemsPerPart), id)
    expect(ranges).toHaveLength(Math.ceil(5 / itemsPerPart))
    expect(await entriesOf(1, ranges, itemsPerPart)).toEqual(await stored([id]))
  })

  test('a period: what was observed in it, of the tenant alone', async () => {
    const ranges = await ledgerSource(database, itemsPerPart).planPeriod(1, { from: before, to: after })
    const found = await entriesOf(1, ranges, itemsPerPart)
    expect(found).toEqual(await stored(operations))
    expect(found).toHaveLength(26)
    expect(ranges.length).toBeGreaterThanOrEqual(Math.ceil(13 / itemsPerPart))
  })
})

test('an operation of another tenant is none; a draft has one empty part', async () => {
  const source = ledgerSource(database)
  expect(await source.planOperation(2, operations[0] ?? '')).toBe('unknown')
  const ranges = await planOf(source, operations[2] ?? '')
  expect([ranges.length, await entriesOf(1, ranges, 1)]).toEqual([1, []])
})

test('a period without operations has one empty part', async () => {
  const source = ledgerSource(database)
  const ranges = await source.planPeriod(1, { from: '2001-01-01T00:00:00Z', to: '2001-02-01T00:00:00Z' })
  expect([ranges.length, await entriesOf(1, ranges, 1)]).toEqual([1, []])
})

test.each([1, 2, 100])(
  'a period has what begins between the plan and the write, in parts of %i items',
  async (itemsPerPart) => {
    const source = ledgerSource(database, itemsPerPart)
    const from = await clock()
    const [first, second, third] = [await plant(3), await plant(3), await plant(3)]
    const begin = (ids: readonly string[], started: boolean) =>
      database.query(
        ({ sql }) => sql`
        update operations set started_at = case when ${started} then created_at end
        where id::text = any(${`{${ids.join(',')}}`}::text[])`,
      )
    const to = '2999-01-01T00:00:00Z'
    await begin([first, second, third], false)
    const none = await source.planPeriod(1, { from, to })
    expect(await entriesOf(1, none, itemsPerPart)).toEqual([])
    await begin([second], true)
    const one = await source.planPeriod(1, { from, to })
    await begin([first, third], true)
    const all = await stored([first, second, third])
    expect(all).toHaveLength(18)
    expect(await entriesOf(1, none, itemsPerPart)).toEqual(all)
    expect(await entriesOf(1, one, itemsPerPart)).toEqual(all)
  },
)
