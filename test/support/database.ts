import { randomBytes } from 'node:crypto'
import postgres from 'postgres'
import { inject } from 'vitest'

const TEMPLATE = 'opledger_template'

const withDatabaseName = (url: string, name: string): string => {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

const runOnServer = async (url: string, statement: string): Promise<void> => {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    await sql.unsafe(statement)
  } finally {
    await sql.end()
  }
}

/** Creates the empty template and returns its URL; the global setup migrates it. */
export const createTemplate = async (serverUrl: string): Promise<string> => {
  await runOnServer(serverUrl, `create database ${TEMPLATE}`)
  return withDatabaseName(serverUrl, TEMPLATE)
}

export interface TestDatabase {
  url: string
  /** Ends all sessions on it. A test that fails before this leaves the database for a look until the run ends. */
  drop(): Promise<void>
}

/** A migrated database of its own, for one test file. */
export const createTestDatabase = async (): Promise<TestDatabase> => {
  const serverUrl = inject('databaseUrl')
  const name = `test_${randomBytes(6).toString('hex')}`
  await runOnServer(serverUrl, `create database ${name} template ${TEMPLATE}`)
  return {
    url: withDatabaseName(serverUrl, name),
    drop: () => runOnServer(serverUrl, `drop database if exists ${name} with (force)`),
  }
}
