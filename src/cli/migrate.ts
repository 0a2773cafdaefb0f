import type { Command } from 'commander'
import { loadConfigFromProcess } from '../config.ts'

/** `opledger migrate`. */
export const addMigrateCommand = (program: Command): void => {
  program
    .command('migrate')
    .description('bring the schema in DATABASE_URL up to this version')
    .action(async () => {
      const { migrate } = await import('../storage/migrate.ts')
      const { applied } = await migrate({ url: loadConfigFromProcess('migrate').databaseUrl })
      process.stdout.write(applied === 0 ? 'The schema is up to date.\n' : `Migrations applied: ${applied}.\n`)
    })
}
