import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import path from 'node:path'
import { inspect } from 'node:util'
import { z } from 'zod'
import { AUDIT_DAYS_DEFAULT, AUDIT_DAYS_MIN } from './domain/audit.ts'
import { ConfigurationError } from './domain/errors.ts'
import { parseRateLimits, RATE_LIMITS_DEFAULT, type RateLimits } from './domain/rate-limit.ts'
import { type PrivateAddresses, parseWebhookSecrets, WEBHOOK_SECRETS_MAX } from './domain/webhook.ts'
import type { TokenSettings } from './http/tokens.ts'
import type { ObjectStoreSettings } from './objects/object-store.ts'
import type { TracingSettings } from './tracing.ts'

/**
 * The only reader of `process.env`. Every setting is listed here with its default and its limits; a bad value, or an
 * `OPLEDGER_*` key that nobody knows, stops the start with one line that names the key.
 *
 * Secrets (`DATABASE_URL`, `OPLEDGER_DIRECT_DATABASE_URL`, `OPLEDGER_KEY`, `OPLEDGER_WEBHOOK_SECRET`, `OPLEDGER_DOWNLOAD_SECRET`,
 * `OPLEDGER_S3_SECRET_ACCESS_KEY`, `OTEL_EXPORTER_OTLP_HEADERS`, `OPLEDGER_SECRET_<NAME>`) may come from a file instead:
 * `<KEY>_FILE` holds its path.
 */
export type ProcessKind = 'start' | 'api' | 'worker' | 'migrate' | 'cli'
export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent'
export type Environment = Readonly<Record<string, string | undefined>>

/** Of systemd, or of whatever speaks its protocol: set by it, not by people. */
export interface ServiceManagerSettings {
  /** `NOTIFY_SOCKET`: a path, or `@` and an abstract name. */
  socket: string
  /** It kills the process when it hears nothing for so long; null: it does not. */
  watchdogMs: number | null
  /** `PATH`, to find its program. */
  path: string
}

export interface Config {
  /** Null only for `start` and `cli`: the embedded PostgreSQL in `dataDir` is used then. */
  readonly databaseUrl: string | null
  /**
   * Straight to PostgreSQL, where `databaseUrl` leads to a pooler: for what needs a session, that is LISTEN and migrations.
   * Null: `databaseUrl` is straight.
   */
  readonly directDatabaseUrl: string | null
  /** Named prepared statements; off behind PgBouncer before 1.21 in transaction mode. */
  readonly databasePrepare: boolean
  /** Connections per process. */
  readonly databasePool: number
  readonly host: string
  readonly port: number
  /** Where clients reach the api, without a trailing slash; null: URLs in answers are relative. */
  readonly publicUrl: string | null
  readonly auth: 'keys' | 'off'
  /** Of whom tokens (JWTs) are taken besides keys; null: of nobody. */
  readonly jwt: TokenSettings | null
  readonly logLevel: LogLevel
  /** Absolute paths of type files; empty: the built-in examples. */
  readonly types: readonly string[]
  readonly dataDir: string
  /** Where artifacts are kept. Api and workers see the same one. */
  readonly artifactStore: ObjectStoreSettings
  /** Signs download links; the same for every api process. Null: `start` makes one, other processes publish no links. */
  readonly downloadSecret: string | null
  /** Worker processes under `start`. */
  readonly workers: number
  /** Shards that one worker runs at once. */
  readonly workerConcurrency: number
  /** `whsec_…`; all of them sign, so that receivers can change over from one to the next. Empty: no webhooks. */
  readonly webhookSecrets: readonly string[]
  /** Whether webhooks may go into private networks. */
  readonly webhookPrivateAddresses: PrivateAddresses
  /** Of the audit; older entries are forgotten. */
  readonly auditDays: number
  /** Who takes traces; null: nobody, and nothing is traced. */
  readonly tracing: TracingSettings | null
  /** Requests a second of one api process; null: nobody is limited. */
  readonly rateLimits: RateLimits | null
  /** Addresses and networks of proxies: whom they call for is read from `X-Forwarded-For`. */
  readonly trustedProxies: readonly string[]
  /** Null: nobody wants to be told how the process is. */
  readonly serviceManager: ServiceManagerSettings | null
  /** For `{env.X}` placeholders: the environment without its secrets. */
  readonly env: Environment
  /** For `{secret.X}` placeholders. */
  readonly secret: (name: string) => string | undefined
}
export type ConfigWithDatabase = Config & { readonly databaseUrl: string }

const SECRET_PREFIX = 'OPLEDGER_SECRET_'
const WEBHOOK_SECRET = 'OPLEDGER_WEBHOOK_SECRET'
const DOWNLOAD_SECRET = 'OPLEDGER_DOWNLOAD_SECRET'
const S3_SECRET = 'OPLEDGER_S3_SECRET_ACCESS_KEY'
/** As the standard names it: `key=value`, separated by commas; most often the credentials of the collector. */
const OTEL_HEADERS = 'OTEL_EXPORTER_OTLP_HEADERS'
const DIRECT_URL = 'OPLEDGER_DIRECT_DATABASE_URL'
const CLIENT_URL = 'OPLEDGER_URL'
const CLIENT_KEY = 'OPLEDGER_KEY'
const KNOWN_OPLEDGER_KEYS = [
  CLIENT_URL,
  CLIENT_KEY,
  DIRECT_URL,
  'OPLEDGER_TYPES',
  'OPLEDGER_DATA_DIR',
  'OPLEDGER_ARTIFACT_STORE',
  'OPLEDGER_S3_ENDPOINT',
  'OPLEDGER_S3_REGION',
  'OPLEDGER_S3_ACCESS_KEY_ID',
  S3_SECRET,
  'OPLEDGER_S3_FORCE_PATH_STYLE',
  DOWNLOAD_SECRET,
  WEBHOOK_SECRET,
  'OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES',
  'OPLEDGER_AUDIT_DAYS',
  'OPLEDGER_JWT_ISSUER',
  'OPLEDGER_JWT_AUDIENCE',
  'OPLEDGER_JWT_JWKS_URL',
  'OPLEDGER_JWT_TENANT',
  'OPLEDGER_JWT_TENANT_CLAIM',
  'OPLEDGER_JWT_NAME_CLAIM',
  'OPLEDGER_JWT_SCOPES_CLAIM',
  'OPLEDGER_RATE_LIMIT',
  'OPLEDGER_TRUSTED_PROXIES',
]
/** Those whose value may stand in a file. */
const SECRET_KEYS = ['DATABASE_URL', DIRECT_URL, CLIENT_KEY, WEBHOOK_SECRET, DOWNLOAD_SECRET, S3_SECRET, OTEL_HEADERS]
const DOWNLOAD_SECRET_CHARS_MIN = 32
const SECRET_FILE_BYTES_MAX = 65_536

const wholeNumber = (min: number, max: number, fallback: number) =>
  z
    .string()
    .default(String(fallback))
    .refine((text) => /^\d{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: (issue) => `"${String(issue.input)}" is not a whole number from ${min} to ${max}`,
    })
    .transform(Number)

const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, { error: (issue) => `"${String(issue.input)}" is not one of ${values.join(', ')}` })

const parseUrl = (text: string): URL | null => (URL.canParse(text) ? new URL(text) : null)

const claimName = z.string().regex(/^[\x21-\x7e]{1,128}$/, { error: 'is not the name of a claim' })

// The value is never repeated in the message: it carries a password.
const databaseUrl = z
  .string()
  .refine((text) => ['postgres:', 'postgresql:'].includes(parseUrl(text)?.protocol ?? ''), {
    error: 'is not a URL like postgres://user:password@host:5432/database',
  })
  .optional()

const TRUSTED_PROXIES_MAX = 100

const words = (text: string): string[] => text.split(/[\s,]+/).filter((word) => word !== '')

/** An address, or a network as an address with the bits of its prefix. */
const isNetwork = (text: string): boolean => {
  const [address = '', bits, ...more] = text.split('/')
  const bitsMax = isIP(address) === 6 ? 128 : 32
  return (
    isIP(address) !== 0 &&
    more.length === 0 &&
    (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax))
  )
}

const settings = z.object({
  DATABASE_URL: databaseUrl,
  OPLEDGER_DIRECT_DATABASE_URL: databaseUrl,
  DATABASE_PREPARE: oneOf(['on', 'off']).default('on'),
  DATABASE_POOL: wholeNumber(2, 200, 10),
  HOST: z.string().regex(/^\S+$/, { error: 'contains white space' }).default('127.0.0.1'),
  PORT: wholeNumber(1, 65_535, 3000),
  PUBLIC_URL: z
    .string()
    .refine(
      (text) => {
        const url = parseUrl(text)
        return url !== null && /^https?:$/.test(url.protocol) && url.search === '' && url.hash === ''
      },
      { error: (issue) => `"${String(issue.input)}" is not an http(s) URL without a query` },
    )
    .optional(),
  AUTH: oneOf(['keys', 'off']).optional(),
  LOG_LEVEL: oneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
  OPLEDGER_TYPES: z.string().default(''),
  OPLEDGER_DATA_DIR: z.string().default('.opledger'),
  OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: oneOf(['refuse', 'allow']).optional(),
  OPLEDGER_RATE_LIMIT: z
    .string()
    .refine((text) => text === 'off' || parseRateLimits(text) !== null, {
      error: (issue) =>
        `"${String(issue.input)}" is neither off nor like "read=500 write=200 work=500 address=50" (requests a second)`,
    })
    .optional(),
  OPLEDGER_TRUSTED_PROXIES: z
    .string()
    .default('')
    .transform(words)
    .refine((proxies) => proxies.length <= TRUSTED_PROXIES_MAX && proxies.every(isNetwork), {
      error: 'is not a list of addresses and networks like "10.0.0.7 10.1.0.0/16"',
    }),
  OPLEDGER_ARTIFACT_STORE: z
    .string()
    .regex(/^(file:[^?#]+|s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](\/[A-Za-z0-9._\-/]*)?)$/, {
      error: (issue) => `"${String(issue.input)}" is neither file:<directory> nor s3://<bucket>/<prefix>`,
    })
    .optional(),
  OPLEDGER_S3_ENDPOINT: z
    .string()
    .refine((text) => /^https?:$/.test(parseUrl(text)?.protocol ?? ''), {
      error: (issue) => `"${String(issue.input)}" is not an http(s) URL`,
    })
    .optional(),
  OPLEDGER_S3_REGION: z
    .string()
    .regex(/^[a-z0-9-]+$/, { error: 'is not the name of a region' })
    .optional(),
  OPLEDGER_S3_ACCESS_KEY_ID: z.string().optional(),
  OPLEDGER_S3_SECRET_ACCESS_KEY: z.string().optional(),
  OPLEDGER_S3_FORCE_PATH_STYLE: oneOf(['on', 'off']).default('off'),
  OPLEDGER_DOWNLOAD_SECRET: z
    .string()
    .min(DOWNLOAD_SECRET_CHARS_MIN, { error: `has fewer than ${DOWNLOAD_SECRET_CHARS_MIN} characters` })
    .optional(),
  OPLEDGER_AUDIT_DAYS: wholeNumber(AUDIT_DAYS_MIN, 36_500, AUDIT_DAYS_DEFAULT),
  OTEL_EXPORTER_OTLP_ENDPOINT: z
    .string()
    .refine((text) => /^https?:$/.test(parseUrl(text)?.protocol ?? ''), {
      error: (issue) => `"${String(issue.input)}" is not an http(s) URL`,
    })
    .optional(),
  OTEL_EXPORTER_OTLP_HEADERS: z
    .string()
    .regex(/^[\w.-]+=[^,]*(,[\w.-]+=[^,]*)*$/, { error: 'is not a list like key=value,key=value' })
    .optional(),
  OTEL_SERVICE_NAME: z.string().max(255).default('opledger'),
  OTEL_SDK_DISABLED: oneOf(['true', 'false']).default('false'),
  OPLEDGER_JWT_ISSUER: z.string().optional(),
  OPLEDGER_JWT_AUDIENCE: z.string().optional(),
  OPLEDGER_JWT_JWKS_URL: z
    .string()
    .refine((text) => isSafeUrl(parseUrl(text)), {
      error: 'is not an https URL without credentials (http is for loopback addresses only)',
    })
    .optional(),
  OPLEDGER_JWT_TENANT: z.string().optional(),
  OPLEDGER_JWT_TENANT_CLAIM: claimName.optional(),
  OPLEDGER_JWT_NAME_CLAIM: claimName.default('sub'),
  OPLEDGER_JWT_SCOPES_CLAIM: claimName.default('scope'),
  WORKERS: wholeNumber(1, 64, 1),
  WORKER_CONCURRENCY: wholeNumber(1, 256, 8),
})

const isLoopback = (host: string): boolean => host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)

/** Nobody on the way can change what comes from there. */
const isSafeUrl = (url: URL | null): boolean =>
  url !== null &&
  url.username === '' &&
  url.password === '' &&
  (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname.replace(/^\[|\]$/g, ''))))

/** Where a client on this machine reaches the api, without a trailing slash. */
export const localUrl = (host: string, port: number): string => {
  const reachable = host === '0.0.0.0' || host === '::' ? 'localhost' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

/** An empty value counts as absent: `KEY=` is how compose files and shells pass on what is not set. */
const withoutEmpty = (env: Environment): Record<string, string> =>
  Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => Boolean(entry[1])))

const readSecretFile = (key: string, file: string): string => {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    throw new ConfigurationError(`${key}: cannot read ${file} (${(error as NodeJS.ErrnoException).code})`, {
      cause: error,
    })
  }
  const value = text.replace(/\r?\n$/, '')
  if (value === '' || value.length > SECRET_FILE_BYTES_MAX) {
    throw new ConfigurationError(`${key}: ${file} is ${value === '' ? 'empty' : 'too large for a secret'}`)
  }
  return value
}

/** The secret under `key`, given directly or by `<key>_FILE`, never both: one of them would be silently ignored. */
const readSecret = (env: Record<string, string>, key: string): string | undefined => {
  const file = env[`${key}_FILE`]
  if (file === undefined) return env[key]
  if (env[key] !== undefined) throw new ConfigurationError(`${key}: set either ${key} or ${key}_FILE, not both`)
  return readSecretFile(`${key}_FILE`, file)
}

const readSecrets = (env: Record<string, string>): Map<string, string> => {
  const secrets = new Map<string, string>()
  for (const key of Object.keys(env)) {
    if (!key.startsWith(SECRET_PREFIX)) continue
    const fullName = key.endsWith('_FILE') ? key.slice(0, -'_FILE'.length) : key
    const name = fullName.slice(SECRET_PREFIX.length)
    if (name === '') throw new ConfigurationError(`${key}: a secret needs a name, as in ${SECRET_PREFIX}TOKEN`)
    const value = readSecret(env, fullName)
    if (value !== undefined) secrets.set(name, value)
  }
  return secrets
}

type Settings = z.infer<typeof settings>

const artifactStoreOf = (values: Settings): ObjectStoreSettings => {
  const given = values.OPLEDGER_ARTIFACT_STORE ?? `file:${path.join(values.OPLEDGER_DATA_DIR, 'artifacts')}`
  if (given.startsWith('file:')) {
    const unused = (
      ['OPLEDGER_S3_ENDPOINT', 'OPLEDGER_S3_REGION', 'OPLEDGER_S3_ACCESS_KEY_ID', S3_SECRET] as const
    ).find((key) => values[key] !== undefined)
    if (unused !== undefined) {
      throw new ConfigurationError(`${unused}: has no meaning unless OPLEDGER_ARTIFACT_STORE is s3://<bucket>/<prefix>`)
    }
    const directory = path.resolve(given.slice('file:'.length))
    return { kind: 'file', directory, required: values.OPLEDGER_ARTIFACT_STORE !== undefined }
  }
  if (values.OPLEDGER_S3_REGION === undefined) {
    throw new ConfigurationError('OPLEDGER_S3_REGION: is needed by OPLEDGER_ARTIFACT_STORE=s3://…')
  }
  const { OPLEDGER_S3_ACCESS_KEY_ID: accessKeyId, OPLEDGER_S3_SECRET_ACCESS_KEY: secretAccessKey } = values
  if ((accessKeyId === undefined) !== (secretAccessKey === undefined)) {
    const missing = accessKeyId === undefined ? 'OPLEDGER_S3_ACCESS_KEY_ID' : S3_SECRET
    throw new ConfigurationError(`${missing}: the access key and its secret are set together, or neither is`)
  }
  const [bucket = '', ...prefix] = given.slice('s3://'.length).split('/')
  return {
    kind: 's3',
    bucket,
    prefix: prefix.filter((part) => part !== '').join('/'),
    endpoint: values.OPLEDGER_S3_ENDPOINT ?? null,
    region: values.OPLEDGER_S3_REGION,
    credentials: accessKeyId === undefined || secretAccessKey === undefined ? null : { accessKeyId, secretAccessKey },
    forcePathStyle: values.OPLEDGER_S3_FORCE_PATH_STYLE === 'on',
  }
}

const tracingOf = (values: Settings): TracingSettings | null => {
  if (values.OTEL_EXPORTER_OTLP_ENDPOINT === undefined || values.OTEL_SDK_DISABLED === 'true') return null
  const pairs = (values.OTEL_EXPORTER_OTLP_HEADERS ?? '').split(',').filter((pair) => pair !== '')
  return {
    endpoint: values.OTEL_EXPORTER_OTLP_ENDPOINT.replace(/\/+$/, ''),
    headers: Object.fromEntries(
      pairs.map((pair) => {
        const [name = '', ...value] = pair.split('=')
        return [name, decode(value.join('='))]
      }),
    ),
    serviceName: values.OTEL_SERVICE_NAME,
  }
}

/** As baggage is: with percent escapes, where they are ones. */
const decode = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const TENANT_CLAIM_DEFAULT = 'tenant'

const tokenSettingsOf = (
  values: Settings,
  given: Record<string, string>,
  auth: Config['auth'],
): TokenSettings | null => {
  const { OPLEDGER_JWT_ISSUER: issuer, OPLEDGER_JWT_AUDIENCE: audience, OPLEDGER_JWT_JWKS_URL: jwksUrl } = values
  const set = Object.keys(given).find((key) => key.startsWith('OPLEDGER_JWT_'))
  if (set === undefined) return null
  if (auth === 'off') throw new ConfigurationError(`${set}: has no meaning with AUTH=off; use AUTH=keys`)
  if (issuer === undefined || audience === undefined || jwksUrl === undefined) {
    const missing =
      issuer === undefined
        ? 'OPLEDGER_JWT_ISSUER'
        : audience === undefined
          ? 'OPLEDGER_JWT_AUDIENCE'
          : 'OPLEDGER_JWT_JWKS_URL'
    throw new ConfigurationError(
      `${missing}: is needed to take tokens: the issuer, the audience and the URL of the keys`,
    )
  }
  const { OPLEDGER_JWT_TENANT: tenant = null, OPLEDGER_JWT_TENANT_CLAIM: tenantClaim } = values
  if (tenant !== null && tenantClaim !== undefined) {
    throw new ConfigurationError('OPLEDGER_JWT_TENANT_CLAIM: has no meaning beside OPLEDGER_JWT_TENANT')
  }
  return Object.freeze({
    issuer,
    audience,
    jwksUrl,
    tenant,
    tenantClaim: tenantClaim ?? TENANT_CLAIM_DEFAULT,
    nameClaim: values.OPLEDGER_JWT_NAME_CLAIM,
    scopesClaim: values.OPLEDGER_JWT_SCOPES_CLAIM,
  })
}

/** Where everybody is let in without a key, everybody is on this machine: nobody is limited unless asked for. */
const rateLimitsOf = (given: string | undefined, auth: Config['auth']): RateLimits | null => {
  if (given === undefined) return auth === 'keys' ? RATE_LIMITS_DEFAULT : null
  return given === 'off' ? null : parseRateLimits(given)
}

/** `<KEY>_FILE` of a known secret is known too. */
const isKnownKey = (key: string): boolean =>
  key.startsWith(SECRET_PREFIX) ||
  KNOWN_OPLEDGER_KEYS.includes(key) ||
  SECRET_KEYS.some((secret) => key === `${secret}_FILE`)

const refuseUnknownKeys = (env: Record<string, string>): void => {
  for (const key of Object.keys(env)) {
    if (!key.startsWith('OPLEDGER_') || isKnownKey(key)) continue
    const known = [...KNOWN_OPLEDGER_KEYS, `${SECRET_PREFIX}<NAME>`].join(', ')
    throw new ConfigurationError(`${key}: no such setting; the OPLEDGER_ settings are ${known}`)
  }
}

const readWebhookSecrets = (env: Record<string, string>): readonly string[] => {
  const text = readSecret(env, WEBHOOK_SECRET)
  const secrets = text === undefined ? [] : parseWebhookSecrets(text)
  if (secrets) return Object.freeze(secrets)
  // The value is never repeated.
  throw new ConfigurationError(
    `${WEBHOOK_SECRET}: is not "whsec_" and the base64 of 24 to 64 bytes (up to ${WEBHOOK_SECRETS_MAX} of them, with spaces between)`,
  )
}

const PATH_DEFAULT = '/usr/local/bin:/usr/bin:/bin'

/** `WATCHDOG_PID` names the process that is meant: children inherit the rest. What cannot be understood is left alone. */
const readServiceManager = (env: Record<string, string>, pid: number): ServiceManagerSettings | null => {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: usec, WATCHDOG_PID: watchedPid } = env
  if (socket === undefined || !/^[@/]/.test(socket)) return null
  const isMeant = watchedPid === undefined || watchedPid === String(pid)
  const watchdogMs = isMeant && usec !== undefined && /^[1-9]\d{3,14}$/.test(usec) ? Number(usec) / 1_000 : null
  return { socket, watchdogMs, path: env.PATH ?? PATH_DEFAULT }
}

const isSecretKey = (key: string): boolean =>
  key.startsWith(SECRET_PREFIX) || SECRET_KEYS.includes(key.replace(/_FILE$/, ''))

/** What may be printed: `console.log` and `JSON.stringify` of a config never show a secret. */
const hideSecrets = (config: Config): Config => {
  const printable = () => {
    const {
      env: _env,
      secret: _secret,
      databaseUrl,
      directDatabaseUrl,
      webhookSecrets,
      downloadSecret,
      artifactStore,
      tracing,
      ...rest
    } = config
    return {
      ...rest,
      databaseUrl: databaseUrl === null ? null : '[redacted]',
      directDatabaseUrl: directDatabaseUrl === null ? null : '[redacted]',
      webhookSecrets: webhookSecrets.map(() => '[redacted]'),
      tracing: tracing && { ...tracing, headers: '[redacted]' },
      downloadSecret: downloadSecret === null ? null : '[redacted]',
      artifactStore: 'credentials' in artifactStore ? { ...artifactStore, credentials: '[redacted]' } : artifactStore,
    }
  }
  Object.defineProperty(config, 'toJSON', { value: printable })
  Object.defineProperty(config, inspect.custom, { value: printable })
  return Object.freeze(config)
}

export function loadConfig(env: Environment, process: 'api' | 'worker' | 'migrate'): ConfigWithDatabase
export function loadConfig(env: Environment, process: ProcessKind): Config
export function loadConfig(env: Environment, process: ProcessKind): Config {
  const given = withoutEmpty(env)
  refuseUnknownKeys(given)
  const secrets = readSecrets(given)
  const webhookSecrets = readWebhookSecrets(given)
  const parsed = settings.safeParse({
    ...given,
    ...Object.fromEntries(SECRET_KEYS.map((key) => [key, readSecret(given, key)])),
  })
  if (!parsed.success) {
    const issue = parsed.error.issues[0]
    throw new ConfigurationError(`${String(issue?.path[0])}: ${issue?.message}`)
  }
  const values = parsed.data
  const loopback = isLoopback(values.HOST)
  const auth = values.AUTH ?? (process === 'start' && loopback ? 'off' : 'keys')
  if (auth === 'off' && !loopback) {
    throw new ConfigurationError(
      `AUTH: off is allowed on a loopback HOST only, and HOST is ${values.HOST}; use AUTH=keys`,
    )
  }
  if (values.DATABASE_URL === undefined && process !== 'start' && process !== 'cli') {
    throw new ConfigurationError(
      `DATABASE_URL: is needed by ${process}; only \`opledger start\` brings its own PostgreSQL`,
    )
  }
  if (values.OPLEDGER_DIRECT_DATABASE_URL !== undefined && values.DATABASE_URL === undefined && process !== 'cli') {
    throw new ConfigurationError(`${DIRECT_URL}: has no meaning without DATABASE_URL, which leads to a pooler then`)
  }
  return hideSecrets({
    databaseUrl: values.DATABASE_URL ?? null,
    directDatabaseUrl: values.OPLEDGER_DIRECT_DATABASE_URL ?? null,
    databasePrepare: values.DATABASE_PREPARE === 'on',
    databasePool: values.DATABASE_POOL,
    host: values.HOST,
    port: values.PORT,
    publicUrl: values.PUBLIC_URL?.replace(/\/+$/, '') ?? null,
    auth,
    jwt: tokenSettingsOf(values, given, auth),
    logLevel: values.LOG_LEVEL,
    types: Object.freeze(
      values.OPLEDGER_TYPES.split(',')
        .map((text) => text.trim())
        .filter((text) => text !== '')
        .map((text) => path.resolve(text)),
    ),
    dataDir: path.resolve(values.OPLEDGER_DATA_DIR),
    artifactStore: artifactStoreOf(values),
    downloadSecret: values.OPLEDGER_DOWNLOAD_SECRET ?? null,
    workers: values.WORKERS,
    workerConcurrency: values.WORKER_CONCURRENCY,
    webhookSecrets,
    webhookPrivateAddresses:
      values.OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES ?? (process === 'start' && auth === 'off' ? 'allow' : 'refuse'),
    auditDays: values.OPLEDGER_AUDIT_DAYS,
    tracing: tracingOf(values),
    rateLimits: rateLimitsOf(values.OPLEDGER_RATE_LIMIT, auth),
    trustedProxies: Object.freeze(values.OPLEDGER_TRUSTED_PROXIES),
    serviceManager: readServiceManager(given, globalThis.process.pid),
    env: Object.freeze(Object.fromEntries(Object.entries(given).filter(([key]) => !isSecretKey(key)))),
    secret: (name) => secrets.get(name),
  })
}

export function loadConfigFromProcess(kind: 'api' | 'worker' | 'migrate'): ConfigWithDatabase
export function loadConfigFromProcess(kind: ProcessKind): Config
export function loadConfigFromProcess(kind: ProcessKind): Config {
  return loadConfig(process.env, kind)
}

/** The environment for a process that `start` spawns: ours, with what `start` decided. */
export const childEnvironment = (decided: {
  databaseUrl: string
  auth: Config['auth']
  webhookPrivateAddresses: PrivateAddresses
  /** Of the secrets that `start` keeps; null: the environment has one. */
  webhookSecretFile: string | null
  downloadSecretFile: string | null
}): Record<string, string | undefined> => {
  // the service manager of `start` hears of `start`, which supervises them
  const {
    DATABASE_URL_FILE: _url,
    NOTIFY_SOCKET: _socket,
    WATCHDOG_USEC: _usec,
    WATCHDOG_PID: _pid,
    ...inherited
  } = process.env
  return {
    ...inherited,
    DATABASE_URL: decided.databaseUrl,
    AUTH: decided.auth,
    OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: decided.webhookPrivateAddresses,
    ...(decided.webhookSecretFile === null ? {} : { [`${WEBHOOK_SECRET}_FILE`]: decided.webhookSecretFile }),
    ...(decided.downloadSecretFile === null ? {} : { [`${DOWNLOAD_SECRET}_FILE`]: decided.downloadSecretFile }),
  }
}

/** An API key or, in three parts, a token. */
const CREDENTIAL = /^(opl_[\x21-\x7e]+|[\w-]+\.[\w-]+\.[\w-]+)$/

/** How the command line reaches a service. */
export interface ClientSettings {
  /** Without a trailing slash. */
  readonly url: string
  /** An API key or a token; null: the service runs without keys. */
  readonly key: string | null
}

/**
 * `given` are the options of a command, which go before `OPLEDGER_URL` and `OPLEDGER_KEY`. Without a URL it is the service
 * that `start` would run here.
 */
export const loadClientSettings = (
  env: Environment,
  given: { url?: string | undefined; key?: string | undefined } = {},
): ClientSettings => {
  const set = withoutEmpty(env)
  refuseUnknownKeys(set)
  const here = settings.pick({ HOST: true, PORT: true }).safeParse(set)
  const named = given.url ?? set[CLIENT_URL]
  if (named === undefined && !here.success) {
    const issue = here.error.issues[0]
    throw new ConfigurationError(`${String(issue?.path[0])}: ${issue?.message}`)
  }
  const url = named ?? localUrl(here.data?.HOST ?? '', here.data?.PORT ?? 0)
  const parsed = parseUrl(url)
  const where = given.url === undefined ? CLIENT_URL : '--url'
  if (parsed !== null && (parsed.username !== '' || parsed.password !== '')) {
    throw new ConfigurationError(`${where}: a URL carries no credentials; give the API key with ${CLIENT_KEY}`)
  }
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.search !== '' || parsed.hash !== '') {
    throw new ConfigurationError(`${where}: "${url}" is not an http(s) URL without a query`)
  }
  const key = given.key ?? readSecret(set, CLIENT_KEY) ?? null
  // The value is never repeated.
  if (key !== null && !CREDENTIAL.test(key)) {
    throw new ConfigurationError(
      `${given.key === undefined ? CLIENT_KEY : '--key'}: is not an API key (opl_…), nor a JWT`,
    )
  }
  return Object.freeze({ url: url.replace(/\/+$/, ''), key })
}

export const loadClientSettingsFromProcess = (given: {
  url?: string | undefined
  key?: string | undefined
}): ClientSettings => loadClientSettings(process.env, given)
