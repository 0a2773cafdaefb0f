import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { createLog } from '../../src/log.ts'
import { onShutdown } from '../../src/shutdown.ts'

/** A process of its own that uses an embedded PostgreSQL, for tests that kill it. Prints one line when it has it. */
const [dataDir = ''] = process.argv.slice(2)
const server = await startEmbeddedPostgres({
  dataDir,
  log: createLog({ level: 'silent', name: 'postgres-user' }),
  settings: { fsync: 'off' },
})
onShutdown(() => server.stop())
process.stdout.write(`${JSON.stringify({ url: server.url, adopted: server.adopted })}\n`)
setInterval(() => {}, 60_000)
