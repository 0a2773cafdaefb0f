import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ints, texts } from '../../src/storage/array-literal.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readWindow } from '../../src/storage/run/window.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { claimOne, storeOperation, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 3, name: 'database', acquireMs: 60_000 })
  await database.query(({ script }) => script('create table accounts (id int primary key, amount int not null)'))
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

const TRANSFERS = 40
const QUERIES = 400

test('three connections, 400 queries and 40 transactions at once: each gets its own answer, and no sum is torn', async () => {
  await database.query(({ sql }) => sql`insert into accounts select g, 1000 from generate_series(0, 9) g`)
  const transfer = (n: number) =>
    database.transaction(async ({ sql }) => {
      const [from, to] = [n % 10, (n + 1) % 10]
      for (const id of [from, to].sort()) await sql`select 1 from accounts where id = ${id} for no key update`
      await sql`update accounts set amount = amount - 1 where id = ${from}`
      if (n % 4 === 0) throw new Error('changed its mind')
      await sql`update accounts set amount = amount + 1 where id = ${to}`
    })
  const transfers = Array.from({ length: TRANSFERS }, (_, n) => transfer(n))
  const queries = Array.from({ length: QUERIES }, (_, n) =>
    database.query(
      ({ sql }) => sql<{ n: number; sum: number }>`
      select ${n}::int as n, (select sum(amount)::int from accounts) as sum`,
    ),
  )
  const [transferred, answers] = await Promise.all([Promise.allSettled(transfers), Promise.all(queries)])
  expect(transferred.filter(({ status }) => status === 'fulfilled')).toHaveLength((TRANSFERS * 3) / 4)
  for (const outcome of transferred) {
    if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ message: 'changed its mind' })
  }
  expect(answers.map(([row]) => row?.n)).toEqual(Array.from({ length: QUERIES }, (_, n) => n))
  expect(new Set(answers.map(([row]) => row?.sum))).toEqual(new Set([10_000]))
  const [sum] = await database.query(
    ({ sql }) => sql<{ sum: number; sessions: number }>`
      select sum(amount)::int as sum, (select count(*)::int from pg_stat_activity
        where datname = current_database() and application_name = 'database') as sessions from accounts`,
  )
  expect(sum).toEqual({ sum: 10_000, sessions: 3 })
})

test('a lock and its work share one transaction, and the work sees what the lock waited for', async () => {
  const increment = () =>
    database.lockThenWork((sql) => ({
      lock: sql`select 1 from accounts where id = ${0} for no key update`,
      work: sql<{ amount: number }>`
        update accounts set amount = (select amount from accounts where id = ${0}) + 1 where id = ${0} returning amount`,
    }))
  await database.query(({ sql }) => sql`update accounts set amount = 0 where id = 0`)
  const amounts = (await Promise.all(Array.from({ length: 60 }, increment))).flat().map(({ amount }) => amount)
  expect(amounts.sort((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, n) => n + 1))
})

test('a statement that fails within a transaction undoes it all, and the connection is as good as new', async () => {
  const work = database.transaction(async ({ sql }) => {
    await sql`update accounts set amount = -1 where id = 1`
    await sql`select 1 / 0`
  })
  await expect(work).rejects.toMatchObject({ code: '22012' })
  const steps = database.lockThenWork((sql) => ({
    lock: sql`update accounts set amount = -1 where id = 1`,
    work: sql`select 1 / ${0}::int`,
  }))
  await expect(steps).rejects.toMatchObject({ code: '22012' })
  const rows = await database.query(({ sql }) => sql`select 1 from accounts where amount < 0`)
  expect(rows).toEqual([])
})

test('steps that throw leave no transaction open', async () => {
  const steps = database.lockThenWork(() => {
    throw new Error('not even begun')
  })
  await expect(steps).rejects.toThrow('not even begun')
  // a server process ends when it notices that its client is gone, which is soon and not at once
  const open = () =>
    database.query(
      ({ sql }) => sql`
        select 1 from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%' and pid <> pg_backend_pid()`,
    )
  await expect.poll(open, { timeout: 10_000 }).toEqual([])
})

describe('case 69: JSON keeps its value and its type', () => {
  const values = [
    '{}',
    '[]',
    '"s"',
    '5',
    'null',
    '"10.5"',
    '"true"',
    '"null"',
    '"{}"',
    '"\\"q\\""',
    'true',
    '0.1',
    '-0.5e-3',
  ]

  test('through the input of an item', async () => {
    await wipe(database)
    const items = values.map((input, ord) => ({ key: `i${ord}`, effectKey: `e${ord}`, input }))
    await storeOperation(database, { items })
    const lease = await claimOne(database)
    const window = await database.query((connection) => readWindow(connection, lease, 0, values.length))
    expect(window.map(({ input }) => input)).toEqual(values.map((value) => JSON.parse(value)))
    const types = await database.query(
      ({ sql }) => sql<{ type: string }>`select jsonb_typeof(input) as type from operation_items order by ord`,
    )
    expect(types.map(({ type }) => type)).toEqual([
      'object',
      'array',
      'string',
      'number',
      'null',
      ...Array.from({ length: 5 }, () => 'string'),
      'boolean',
      'number',
      'number',
    ])
  })

  test('through a nested input, with every kind of text', async () => {
    await wipe(database)
    const input = {
      text: 'a "quoted" \\ back, {brace} NULL é 漢 😀 \\u0000',
      list: [null, [], {}, 'NULL', ''],
      'k"e,y': -1,
    }
    await storeOperation(database, { items: [{ key: 'NULL', effectKey: '{"a","b"}', input: JSON.stringify(input) }] })
    const lease = await claimOne(database)
    const [item] = await database.query((connection) => readWindow(connection, lease, 0, 1))
    expect(item).toMatchObject({ key: 'NULL', effectKey: '{"a","b"}', input })
  })
})

test('arrays keep their texts, nulls and numbers', async () => {
  const given = ['', 'NULL', 'null', '"', '\\', 'a,b', '{}', ' x ', '漢😀', '\n\t', "it's", null]
  const rows = await database.query(
    ({ sql }) => sql<{ t: string | null; n: string }>`
      select t, n from unnest(${texts(given)}::text[], ${ints([0, -1, 2 ** 53 - 1])}::bigint[]) with ordinality as u (t, n, o)
      order by o`,
  )
  expect(rows.map(({ t }) => t)).toEqual(given)
  expect(rows.slice(0, 3).map(({ n }) => n)).toEqual(['0', '-1', '9007199254740991'])
})

test('case 71: a time comes back as the text that the database has, to the microsecond', async () => {
  const time = '2026-11-29 14:20:18.123456+00'
  const [row] = await database
    .query(({ sql, db }) =>
      Promise.all([
        sql<{ at: string }>`select ${time}::timestamptz as at`,
        db.execute<{ at: string }>(`select '${time}'::timestamptz as at`),
      ]),
    )
    .then((answers) => answers.map(([answer]) => answer?.at))
    .then((ats) => [ats])
  expect(row).toEqual([time, time])
})

test('case 75: what the database counts in 64 bits never becomes a number that lies', async () => {
  const [row] = await database.query(({ sql }) => sql`select ${2n ** 62n}::bigint as big, count(*) as n from accounts`)
  expect(row).toEqual({ big: '4611686018427387904', n: '10' })
})
