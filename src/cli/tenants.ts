import type { Command } from 'commander'
import type { Database } from '../storage/database.ts'
import { commandLineAuthor } from './author.ts'
import { printJson } from './service-command.ts'

const EXAMPLES = `
A tenant is a world of its own: no key of one sees or touches what belongs to another. There is one from the start: default.
These work on the database itself: that of DATABASE_URL, else the one that \`opledger start\` runs here.

Examples:
  opledger tenants create acme
  opledger keys create --tenant acme --name billing --scopes read,write > acme.key
  opledger tenants list
`

const withTenants = async (work: (database: Database) => Promise<void>): Promise<void> => {
  const { withDatabase } = await import('./database.ts')
  await withDatabase('tenants', work)
}

/** `opledger tenants create|list`. */
export const addTenantCommands = (program: Command): void => {
  const tenants = program
    .command('tenants')
    .description('whose operations are kept apart')
    .addHelpText('after', EXAMPLES)
  tenants
    .command('create')
    .description('make a tenant')
    .argument('<name>', 'as --tenant and tokens name it')
    .addHelpText('after', EXAMPLES)
    .action((name: string) =>
      withTenants(async (database) => {
        const { createTenant } = await import('../services/tenants.ts')
        process.stdout.write(`${await createTenant(database, name, commandLineAuthor())}  ${name}\n`)
      }),
    )
  tenants
    .command('list')
    .description('all tenants')
    .option('--json', 'as JSON')
    .addHelpText('after', EXAMPLES)
    .action((options: { json?: boolean }) =>
      withTenants(async (database) => {
        const { listTenants } = await import('../storage/tenants.ts')
        const rows = await database.query(listTenants)
        if (options.json) return printJson(rows.map(({ id, name, createdAt }) => ({ id, name, created_at: createdAt })))
        for (const { id, name, createdAt } of rows) process.stdout.write(`${id}  ${name}  since ${createdAt}\n`)
      }),
    )
}
