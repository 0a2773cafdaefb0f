import type { AuditAuthor } from '../domain/audit.ts'
import { ConfigurationError } from '../domain/errors.ts'
import type { Database } from '../storage/database.ts'
import { findTenantId, insertTenant } from '../storage/tenants.ts'
import { auditEntry, UNNAMED } from './audit.ts'

/** Tokens carry it, and people type it. */
const TENANT_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/
const KNOWN_MS = 60_000
const KNOWN_MAX = 1_000

/** Tenants by name, for tokens. One that was found is known for a minute; tenants are neither renamed nor removed. */
export const openTenantNames = (database: Database): { find(name: string): Promise<number | null> } => {
  const known = new Map<string, { id: number; atMs: number }>()
  return {
    async find(name) {
      const kept = known.get(name)
      if (kept !== undefined && performance.now() - kept.atMs < KNOWN_MS) return kept.id
      const id = await database.query((connection) => findTenantId(connection, name))
      if (id === null) return null
      if (known.size >= KNOWN_MAX) known.clear()
      known.set(name, { id, atMs: performance.now() })
      return id
    },
  }
}

/** @throws ConfigurationError when there is no such tenant */
export const tenantIdOf = async (database: Database, name: string): Promise<number> => {
  const id = await database.query((connection) => findTenantId(connection, name))
  if (id === null) throw new ConfigurationError(`--tenant: there is no tenant "${name}": see \`opledger tenants list\``)
  return id
}

/** @throws ConfigurationError for a bad name, or one that is taken */
export const createTenant = async (
  database: Database,
  name: string,
  author: AuditAuthor = UNNAMED,
): Promise<number> => {
  if (!TENANT_NAME.test(name)) {
    throw new ConfigurationError(
      `the name "${name}" is not 1 to 64 lower-case letters, digits and inner dots, dashes or underscores`,
    )
  }
  const audit = auditEntry(author, 'tenant.create', ['tenant', name], null)
  const id = await database.query((connection) => insertTenant(connection, name, audit))
  if (id === null) throw new ConfigurationError(`the tenant "${name}" was not made: is the name taken?`)
  return id
}
