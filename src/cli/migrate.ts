import type { Command } from 'commander'
import { loadConfigFromProcess } from '../config.ts'

const EXAMPLES = `
Run it before the new api and workers start; at the same time as others it is safe, and without DATABASE_URL \`start\` does it.

Examples:
  DATABASE_URL=postgres://opledger@db.internal/opledger opledger migrate
`

/** `opledger migrate`. */
export const addMigrateCommand = (program: Command): void => {
  program
    .command('migrate')
    .description('bring the schema in DATABASE_URL up to this version')
    .addHelpText('after', EXAMPLES)
    .action(async () => {
      const { migrate } = await import('../storage/migrate.ts')
      const { databaseUrl, directDatabaseUrl } = loadConfigFromProcess('migrate')
      const { applied } = await migrate({ url: directDatabaseUrl ?? databaseUrl })
      process.stdout.write(applied === 0 ? 'The schema is up to date.\n' : `Migrations applied: ${applied}.\n`)
    })
}
