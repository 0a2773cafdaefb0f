import type { Command } from 'commander'
import { ConfigurationError } from '../domain/errors.ts'
import { SCOPES, type Scope } from '../services/principal.ts'
import type { ApiKeyListRow } from '../storage/api-keys.ts'
import type { Database } from '../storage/database.ts'
import { commandLineAuthor } from './author.ts'
import { printJson } from './service-command.ts'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

const scopesOf = (text: string): Scope[] =>
  text.split(',').map((name) => {
    const scope = SCOPES.find((known) => known === name.trim())
    if (scope) return scope
    throw new ConfigurationError(`--scopes: "${name}" is not one of ${SCOPES.join(', ')}`)
  })

const daysOf = (text: string | undefined): number | null => {
  if (text === undefined) return null
  if (/^[1-9]\d{0,4}$/.test(text)) return Number(text)
  throw new ConfigurationError(`--expires-in-days: "${text}" is not a number of days`)
}

const toJson = (key: ApiKeyListRow) => ({
  id: key.id,
  name: key.name,
  scopes: key.scopes,
  created_at: key.createdAt,
  expires_at: key.expiresAt,
  revoked_at: key.revokedAt,
  last_used_at: key.lastUsedAt,
})

const withKeys = async (work: (database: Database) => Promise<void>): Promise<void> => {
  const { withDatabase } = await import('./database.ts')
  await withDatabase('keys', work)
}

const EXAMPLES = `
These work on the database itself: that of DATABASE_URL, else the one that \`opledger start\` runs here.

Examples:
  opledger keys create --name billing --scopes read,write --expires-in-days 90 > billing.key
  opledger keys list
  opledger keys revoke 0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d5e
`

/** `opledger keys create|list|revoke`: on the database itself, so that the first key can be made. */
export const addKeyCommands = (program: Command): void => {
  const keys = program.command('keys').description('API keys, for AUTH=keys').addHelpText('after', EXAMPLES)
  keys
    .command('create')
    .description('make a key and print it; it is shown this once only')
    .requiredOption('--name <name>', 'who uses it: shown as requested_by and in the audit')
    .option('--scopes <list>', `some of ${SCOPES.join(',')}`, SCOPES.join(','))
    .option('--expires-in-days <days>', 'valid for so long; without it, until it is revoked')
    .addHelpText('after', EXAMPLES)
    .action((options: { name: string; scopes: string; expiresInDays?: string }) =>
      withKeys(async (database) => {
        const { createApiKey } = await import('../services/api-keys.ts')
        const asked = {
          name: options.name,
          scopes: scopesOf(options.scopes),
          expiresInDays: daysOf(options.expiresInDays),
        }
        const { id, key } = await createApiKey(database, asked, commandLineAuthor())
        process.stderr.write(`Key ${id} of ${options.name}. It is shown this once:\n`)
        process.stdout.write(`${key}\n`)
      }),
    )
  keys
    .command('list')
    .description('all keys, without their secrets')
    .option('--json', 'as JSON')
    .addHelpText('after', EXAMPLES)
    .action((options: { json?: boolean }) =>
      withKeys(async (database) => {
        const { listApiKeys } = await import('../storage/api-keys.ts')
        const keys = await database.query(listApiKeys)
        if (options.json) return printJson(keys.map(toJson))
        for (const key of keys) {
          const state = key.revokedAt ? `revoked ${key.revokedAt}` : key.expiresAt ? `until ${key.expiresAt}` : 'valid'
          const used = key.lastUsedAt ? `last used ${key.lastUsedAt}` : 'never used'
          process.stdout.write(`${key.id}  ${key.name}  ${key.scopes.join(',')}  ${state}  ${used}\n`)
        }
      }),
    )
  keys
    .command('revoke')
    .description('end a key now')
    .argument('<id>', 'as `keys list` shows it')
    .addHelpText('after', EXAMPLES)
    .action((id: string) =>
      withKeys(async (database) => {
        const { endApiKey } = await import('../services/api-keys.ts')
        const revoked = UUID.test(id) && (await endApiKey(database, id, commandLineAuthor()))
        if (!revoked) throw new ConfigurationError(`there is no valid key ${id}: see \`opledger keys list\``)
        process.stdout.write('revoked\n')
      }),
    )
}
