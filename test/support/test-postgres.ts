import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type { TestProject } from 'vitest/node'
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { createLog } from '../../src/log.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { createTemplate } from './database.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A superuser's URL of the run's PostgreSQL. */
    databaseUrl: string
  }
}

/** One PostgreSQL for a whole run, with one migrated template that every test file clones. Answers with what ends it. */
export const providePostgres = async (
  project: TestProject,
  settings: Readonly<Record<string, string>>,
): Promise<() => Promise<void>> => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'opledger-test-'))
  chmodSync(dataDir, 0o755) // as root, PostgreSQL runs under another uid and has to get through
  const server = await startEmbeddedPostgres({ dataDir, log: createLog({ level: 'warn', name: 'test' }), settings })
  const stop = async () => {
    await server.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
  try {
    await migrate({ url: await createTemplate(server.url) })
  } catch (error) {
    await stop()
    throw error
  }
  project.provide('databaseUrl', server.url)
  return stop
}
