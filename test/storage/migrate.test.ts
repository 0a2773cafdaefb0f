import { randomBytes } from 'node:crypto'
import { readdirSync } from 'node:fs'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { ConfigurationError } from '../../src/domain/errors.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { compareSchema, migrate, refuseNewerSchema } from '../../src/storage/migrate.ts'

const MIGRATIONS = readdirSync(new URL('../../drizzle', import.meta.url)).filter((file) => file.endsWith('.sql')).length

let server: postgres.Sql
const created: string[] = []

beforeAll(() => {
  server = postgres(inject('databaseUrl'), { max: 2, onnotice: () => {} })
})
afterAll(async () => {
  for (const name of created) await server.unsafe(`drop database if exists ${name} with (force)`)
  await server.end()
})

/** A database without anything in it. */
const createEmpty = async (): Promise<string> => {
  const name = `migrate_${randomBytes(6).toString('hex')}`
  await server.unsafe(`create database ${name}`)
  created.push(name)
  const url = new URL(inject('databaseUrl'))
  url.pathname = `/${name}`
  return url.href
}

const ask = async <T>(url: string, question: (database: Database) => Promise<T>): Promise<T> => {
  const database = openDatabase({ url, size: 1, name: 'migrate test' })
  try {
    return await question(database)
  } finally {
    await database.close()
  }
}
const compare = (url: string) => ask(url, (database) => database.query(compareSchema))

const run = async (url: string, statement: string): Promise<postgres.RowList<postgres.Row[]>> => {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    return await sql.unsafe(statement)
  } finally {
    await sql.end()
  }
}

test('case 105: five that start together on an empty database take turns, and one of them migrates', async () => {
  for (let round = 0; round < 10; round++) {
    const url = await createEmpty()
    const results = await Promise.all(Array.from({ length: 5 }, () => migrate({ url })))
    expect(results.map(({ applied }) => applied).sort()).toEqual([0, 0, 0, 0, MIGRATIONS])
    expect(await run(url, 'select position from opledger_meta.migrations')).toHaveLength(MIGRATIONS)
    expect(await compare(url)).toBe('current')
  }
})

test('a second run changes nothing', async () => {
  const url = await createEmpty()
  expect(await migrate({ url })).toEqual({ applied: MIGRATIONS })
  expect(await migrate({ url })).toEqual({ applied: 0 })
})

test('a migration that fails leaves nothing behind', async () => {
  const url = await createEmpty()
  await run(url, 'create table operations (id int)') // in the way of the first migration
  await expect(migrate({ url })).rejects.toMatchObject({ code: '42P07' })
  expect(await run(url, "select 1 from pg_tables where tablename = 'tenants' or schemaname = 'opledger_meta'")).toEqual(
    [],
  )
  await run(url, 'drop table operations')
  expect(await migrate({ url })).toEqual({ applied: MIGRATIONS })
})

test('a schema that is newer than this version is refused, in one line', async () => {
  const url = await createEmpty()
  await migrate({ url })
  await run(url, `insert into opledger_meta.migrations (position, hash) values (${MIGRATIONS}, 'later')`)
  const error = await migrate({ url }).catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(ConfigurationError)
  expect(String(error)).toMatch(/^[^\n]*start a newer version[^\n]*$/)
  expect(await compare(url)).toBe('newer')
  await expect(ask(url, refuseNewerSchema)).rejects.toThrow(ConfigurationError)
})

test('a schema that other files have made is refused', async () => {
  const url = await createEmpty()
  await migrate({ url })
  await run(url, "update opledger_meta.migrations set hash = 'other' where position = 0")
  await expect(migrate({ url })).rejects.toThrow(ConfigurationError)
})

test('a database that is not migrated is older, and no reason to refuse the start', async () => {
  const url = await createEmpty()
  expect(await compare(url)).toBe('older')
  await ask(url, refuseNewerSchema)
  await migrate({ url })
  await run(url, 'delete from opledger_meta.migrations')
  expect(await compare(url)).toBe('older')
})

test('a server that is away is told in one line by migrate, and is no reason to refuse the start', async () => {
  const url = 'postgres://nobody@127.0.0.1:1/nowhere'
  await expect(migrate({ url })).rejects.toThrow(/^DATABASE_URL: [^\n]*$/)
  await ask(url, refuseNewerSchema)
})
