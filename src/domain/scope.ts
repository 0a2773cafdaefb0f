/**
 * What a caller may do. Each route asks for one of these (docs/security.md lists them); a key or a token carries some.
 * `work`: take items of remote types, unmasked, and say what became of them. `metrics:service`: see in `/metrics` the whole
 * service and not only one's own tenant; for whoever runs it.
 */
export const SCOPES = [
  'operations:read',
  'operations:write',
  'ledger:read',
  'replay',
  'approve',
  'reconcile',
  'types:admin',
  'metrics:read',
  'metrics:service',
  'audit:read',
  'work',
] as const
export type Scope = (typeof SCOPES)[number]

/**
 * Several under one name, for people who make keys. `read`, `write`, `operate` and `admin` are what keys had before scopes
 * were this fine: drizzle/0015_scopes.sql gave those keys exactly these.
 */
export const SCOPE_BUNDLES: Readonly<Record<string, readonly Scope[]>> = {
  read: ['operations:read', 'ledger:read', 'metrics:read'],
  write: ['operations:write', 'replay'],
  operate: ['approve', 'reconcile'],
  admin: ['types:admin', 'audit:read'],
  metrics: ['metrics:read', 'metrics:service'],
}

/** Those that end at the tenant: what a key gets for which nothing else is asked. */
export const TENANT_SCOPES: readonly Scope[] = SCOPES.filter((scope) => scope !== 'metrics:service')

/** The scopes among these names, in the order of SCOPES. Names that nobody knows grant nothing. */
export const knownScopes = (names: readonly string[]): Scope[] => SCOPES.filter((scope) => names.includes(scope))

/** What names of scopes and of bundles stand for, or the first one that is neither. */
export const expandScopes = (names: readonly string[]): { scopes: Scope[] } | { unknown: string } => {
  const bundleOf = (name: string) => (Object.hasOwn(SCOPE_BUNDLES, name) ? SCOPE_BUNDLES[name] : undefined)
  const given = names.map((name) => ({ name, scopes: bundleOf(name) ?? knownScopes([name]) }))
  const unknown = given.find(({ scopes }) => scopes.length === 0)
  return unknown ? { unknown: unknown.name } : { scopes: knownScopes(given.flatMap(({ scopes }) => scopes)) }
}
