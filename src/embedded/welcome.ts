import { type Config, localUrl } from '../config.ts'

/** The few lines that `start` prints when everything is ready: where it is, what it can run, and one thing to try. */
const REQUEST_MS = 2_000
const TYPE_NAMES_MAX = 8

interface TypeSummary {
  name: string
  input_schema?: unknown
}

interface SchemaSummary {
  type?: unknown
  enum?: unknown[]
  examples?: unknown[]
  properties?: Record<string, SchemaSummary>
  required?: string[]
}

/** A value that a simple JSON Schema accepts; only for an example, so a schema beyond this gets a plain string. */
const sampleValue = (schema: SchemaSummary): unknown => {
  if (schema.examples?.length) return schema.examples[0]
  if (schema.enum?.length) return schema.enum[0]
  if (schema.type === 'object' || schema.properties) {
    return Object.fromEntries((schema.required ?? []).map((key) => [key, sampleValue(schema.properties?.[key] ?? {})]))
  }
  if (schema.type === 'integer' || schema.type === 'number') return 1
  if (schema.type === 'boolean') return true
  if (schema.type === 'array') return []
  return 'example'
}

/** Asks the api itself; null when it does not tell, for example because it wants a key. */
const listTypes = async (base: string): Promise<TypeSummary[] | null> => {
  try {
    const response = await fetch(`${base}/operation-types`, { signal: AbortSignal.timeout(REQUEST_MS) })
    if (!response.ok) return null
    const { items } = (await response.json()) as { items: TypeSummary[] }
    return items
  } catch {
    return null
  }
}

const exampleCurl = (base: string, { name, input_schema: schema }: TypeSummary): string => {
  const input = sampleValue((schema ?? { type: 'object' }) as SchemaSummary)
  const body = JSON.stringify({ type: name, items: [{ key: 'first', input }] }).replaceAll("'", "'\\''")
  return `  curl -s ${base}/operations -H 'content-type: application/json' -H 'idempotency-key: first-try' -d '${body}'`
}

export const describeStart = async (config: Config, webhookSecretFile: string | null): Promise<string> => {
  const base = localUrl(config.host, config.port)
  const database =
    config.databaseUrl === null ? `embedded PostgreSQL in ${config.dataDir}` : 'PostgreSQL of DATABASE_URL'
  const types = config.auth === 'off' ? await listTypes(base) : null
  const lines = [
    '',
    `opledger is ready: ${config.publicUrl ?? base}   (${database}; workers: ${config.workers}; auth: ${config.auth})`,
  ]
  if (types !== null) {
    const names = types.map((type) => type.name)
    const more = names.length > TYPE_NAMES_MAX ? `, and ${names.length - TYPE_NAMES_MAX} more` : ''
    lines.push(`types: ${names.slice(0, TYPE_NAMES_MAX).join(', ')}${more}`)
  }
  const first = types?.[0]
  if (first) lines.push('try:', exampleCurl(base, first))
  if (config.auth === 'keys') lines.push('every request needs a key: opledger keys create')
  if (webhookSecretFile !== null) lines.push(`webhooks are signed with the secret in ${webhookSecretFile}`)
  lines.push(`console: ${config.publicUrl ?? base}/console`, `docs:  ${base}/docs`, 'Ctrl-C stops everything.', '')
  return `${lines.join('\n')}\n`
}
