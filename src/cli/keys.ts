import type { Command } from 'commander'
import { ConfigurationError } from '../domain/errors.ts'
import { expandScopes, knownScopes, SCOPE_BUNDLES, SCOPES, type Scope, TENANT_SCOPES } from '../domain/scope.ts'
import type { ApiKeyListRow } from '../storage/api-keys.ts'
import type { Database } from '../storage/database.ts'
import { commandLineAuthor } from './author.ts'
import { printJson } from './service-command.ts'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const GRACE_HOURS_DEFAULT = 24
/** Thirty days. */
const GRACE_HOURS_MAX = 720

const scopesOf = (text: string): Scope[] => {
  const expanded = expandScopes(text.split(',').map((name) => name.trim()))
  if ('scopes' in expanded) return expanded.scopes
  const known = [...SCOPES, ...Object.keys(SCOPE_BUNDLES)].join(', ')
  throw new ConfigurationError(`--scopes: "${expanded.unknown}" is not one of ${known}`)
}

const daysOf = (text: string | undefined): number | null => {
  if (text === undefined) return null
  if (/^[1-9]\d{0,4}$/.test(text)) return Number(text)
  throw new ConfigurationError(`--expires-in-days: "${text}" is not a number of days`)
}

const graceHoursOf = (text: string): number => {
  if (/^\d{1,3}$/.test(text) && Number(text) <= GRACE_HOURS_MAX) return Number(text)
  throw new ConfigurationError(`--grace-hours: "${text}" is not a number of hours from 0 to ${GRACE_HOURS_MAX}`)
}

const toJson = (key: ApiKeyListRow) => ({
  id: key.id,
  tenant: key.tenant,
  name: key.name,
  scopes: knownScopes(key.scopes),
  created_at: key.createdAt,
  expires_at: key.expiresAt,
  revoked_at: key.revokedAt,
  rotated_at: key.rotatedAt,
  previous_secret_until: key.previousUntil,
  last_used_at: key.lastUsedAt,
})

const toLine = (key: ApiKeyListRow): string => {
  const state = key.revokedAt ? `revoked ${key.revokedAt}` : key.expiresAt ? `until ${key.expiresAt}` : 'valid'
  const before = key.previousUntil && !key.revokedAt ? [`secret before until ${key.previousUntil}`] : []
  const used = key.lastUsedAt ? `last used ${key.lastUsedAt}` : 'never used'
  return [key.id, key.tenant, key.name, knownScopes(key.scopes).join(','), state, ...before, used].join('  ')
}

const withKeys = async (work: (database: Database) => Promise<void>): Promise<void> => {
  const { withDatabase } = await import('./database.ts')
  await withDatabase('keys', work)
}

/** The tenant that `--tenant` names; without it null. */
const tenantOf = async (database: Database, name: string | undefined): Promise<number | null> => {
  if (name === undefined) return null
  const { tenantIdOf } = await import('../services/tenants.ts')
  return tenantIdOf(database, name)
}

const noSuchKey = (id: string): ConfigurationError =>
  new ConfigurationError(`there is no valid key ${id}: see \`opledger keys list\``)

const BUNDLES = Object.entries(SCOPE_BUNDLES).map(([name, scopes]) => `  ${name.padEnd(9)} ${scopes.join(', ')}`)

const EXAMPLES = `
These work on the database itself: that of DATABASE_URL, else the one that \`opledger start\` runs here.

Scopes: ${SCOPES.join(', ')}
Names for several of them:
${BUNDLES.join('\n')}

Examples:
  opledger keys create --name billing --scopes read,write --expires-in-days 90 > billing.key
  opledger keys create --tenant acme --name viewer --scopes operations:read
  opledger keys create --name prometheus --scopes metrics > prometheus.key
  opledger keys list
  opledger keys rotate 0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d5e --grace-hours 24 > billing.key
  opledger keys revoke 0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d5e
`

/** `opledger keys create|list|rotate|revoke`: on the database itself, so that the first key can be made. */
export const addKeyCommands = (program: Command): void => {
  const keys = program.command('keys').description('API keys, for AUTH=keys').addHelpText('after', EXAMPLES)
  addCreate(keys)
  addList(keys)
  addRotate(keys)
  addRevoke(keys)
}

const addCreate = (keys: Command): void => {
  keys
    .command('create')
    .description('make a key and print it; it is shown this once only')
    .requiredOption('--name <name>', 'who uses it: shown as requested_by and in the audit')
    .option('--tenant <name>', 'whose key it is; without it, the tenant default')
    .option('--scopes <list>', 'scopes, or names for several, with commas between', TENANT_SCOPES.join(','))
    .option('--expires-in-days <days>', 'valid for so long; without it, until it is revoked')
    .addHelpText('after', EXAMPLES)
    .action((options: { name: string; tenant?: string; scopes: string; expiresInDays?: string }) =>
      withKeys(async (database) => {
        const { createApiKey } = await import('../services/api-keys.ts')
        const scopes = scopesOf(options.scopes)
        const expiresInDays = daysOf(options.expiresInDays)
        const tenantId = await tenantOf(database, options.tenant)
        const { id, key } = await createApiKey(
          database,
          {
            name: options.name,
            scopes,
            expiresInDays,
            ...(tenantId !== null && { tenantId }),
          },
          commandLineAuthor(),
        )
        process.stderr.write(`Key ${id} of ${options.name}. It is shown this once:\n`)
        process.stdout.write(`${key}\n`)
      }),
    )
}

const addList = (keys: Command): void => {
  keys
    .command('list')
    .description('all keys, without their secrets')
    .option('--tenant <name>', 'of this tenant only')
    .option('--json', 'as JSON')
    .addHelpText('after', EXAMPLES)
    .action((options: { tenant?: string; json?: boolean }) =>
      withKeys(async (database) => {
        const { listApiKeys } = await import('../storage/api-keys.ts')
        const tenantId = await tenantOf(database, options.tenant)
        const found = await database.query((connection) => listApiKeys(connection, tenantId))
        if (options.json) return printJson(found.map(toJson))
        for (const key of found) process.stdout.write(`${toLine(key)}\n`)
      }),
    )
}

const addRotate = (keys: Command): void => {
  keys
    .command('rotate')
    .description('give a key a new secret and print it; the one before stays valid for a while')
    .argument('<id>', 'as `keys list` shows it')
    .option('--tenant <name>', 'only if it is a key of this tenant')
    .option(
      '--grace-hours <hours>',
      'how long the secret before stays valid; 0: not at all',
      String(GRACE_HOURS_DEFAULT),
    )
    .option('--expires-in-days <days>', 'a new end, from now on; without it, the end stays as it is')
    .addHelpText('after', EXAMPLES)
    .action((id: string, options: { tenant?: string; graceHours: string; expiresInDays?: string }) =>
      withKeys(async (database) => {
        const { renewApiKey } = await import('../services/api-keys.ts')
        const change = { graceHours: graceHoursOf(options.graceHours), expiresInDays: daysOf(options.expiresInDays) }
        const tenantId = await tenantOf(database, options.tenant)
        const renewed = UUID.test(id)
          ? await renewApiKey(database, { id, tenantId }, change, commandLineAuthor())
          : null
        if (renewed === null) throw noSuchKey(id)
        const before = change.graceHours === 0 ? 'has ended' : `is valid until ${renewed.previousUntil}`
        process.stderr.write(`The secret before of ${renewed.name} ${before}. The new one is shown this once:\n`)
        process.stdout.write(`${renewed.key}\n`)
      }),
    )
}

const addRevoke = (keys: Command): void => {
  keys
    .command('revoke')
    .description('end a key now')
    .argument('<id>', 'as `keys list` shows it')
    .option('--tenant <name>', 'only if it is a key of this tenant')
    .addHelpText('after', EXAMPLES)
    .action((id: string, options: { tenant?: string }) =>
      withKeys(async (database) => {
        const { endApiKey } = await import('../services/api-keys.ts')
        const tenantId = await tenantOf(database, options.tenant)
        const revoked = UUID.test(id) && (await endApiKey(database, { id, tenantId }, commandLineAuthor()))
        if (!revoked) throw noSuchKey(id)
        process.stdout.write('revoked\n')
      }),
    )
}
