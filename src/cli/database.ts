import { loadConfigFromProcess } from '../config.ts'
import { startEmbeddedPostgres } from '../embedded/postgres.ts'
import { createLog } from '../log.ts'
import { type Database, openDatabase } from '../storage/database.ts'
import { migrate } from '../storage/migrate.ts'

/** On the server of DATABASE_URL or, without it, on the embedded one: which may run already, and is shared then. */
export const withDatabase = async (command: string, work: (database: Database) => Promise<void>): Promise<void> => {
  const config = loadConfigFromProcess('cli')
  const embedded =
    config.databaseUrl === null
      ? await startEmbeddedPostgres({ dataDir: config.dataDir, log: createLog({ level: 'warn', name: command }) })
      : null
  const url = config.databaseUrl ?? embedded?.url ?? ''
  await migrate({ url: config.directDatabaseUrl ?? url })
  const database = openDatabase({ url, size: 1, name: `opledger ${command}`, prepare: config.databasePrepare })
  try {
    await work(database)
  } finally {
    await database.close()
    await embedded?.stop()
  }
}
