import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { inspect } from 'node:util'
import { afterAll, describe, expect, it, vi } from 'vitest'
import {
  childEnvironment,
  type Environment,
  loadClientSettings,
  loadConfig,
  localUrl,
  type ProcessKind,
} from '../../src/config.ts'
import { ConfigurationError } from '../../src/domain/errors.ts'

const url = 'postgres://me:hunter2@db.example:5432/opledger'
const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-config-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const file = (name: string, text: string): string => {
  const full = path.join(directory, name)
  writeFileSync(full, text)
  return full
}

const secretOf = (bytes: number): string => `whsec_${Buffer.alloc(bytes, 'hunter').toString('base64')}`

describe('defaults', () => {
  it('start needs nothing at all', () => {
    const config = loadConfig({}, 'start')
    expect(config).toMatchObject({
      databaseUrl: null,
      databasePrepare: true,
      databasePool: 10,
      host: '127.0.0.1',
      port: 3000,
      publicUrl: null,
      auth: 'off',
      logLevel: 'info',
      types: [],
      dataDir: path.resolve('.opledger'),
      workers: 1,
      workerConcurrency: 8,
      webhookSecrets: [],
      webhookPrivateAddresses: 'allow',
      rateLimits: null,
      trustedProxies: [],
    })
  })
  it.each<[ProcessKind, Environment, string]>([
    ['api', { DATABASE_URL: url }, 'keys'],
    ['worker', { DATABASE_URL: url }, 'keys'],
    ['api', { DATABASE_URL: url, AUTH: 'off' }, 'off'],
    ['start', { AUTH: 'keys' }, 'keys'],
    ['start', { HOST: 'localhost' }, 'off'],
    ['start', { HOST: '::1' }, 'off'],
    ['start', { HOST: '127.8.0.1' }, 'off'],
    ['start', { HOST: '0.0.0.0' }, 'keys'],
  ])('AUTH of %s with %j is %s', (kind, env, auth) => {
    expect(loadConfig(env, kind).auth).toBe(auth)
  })
  it.each<[ProcessKind, Environment, string]>([
    ['start', {}, 'allow'],
    ['start', { HOST: '0.0.0.0' }, 'refuse'],
    ['start', { AUTH: 'keys' }, 'refuse'],
    ['start', { OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'refuse' }, 'refuse'],
    ['api', { DATABASE_URL: url, AUTH: 'off' }, 'refuse'],
    ['worker', { DATABASE_URL: url, OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'allow' }, 'allow'],
  ])('webhooks of %s with %j into private networks: %s', (kind, env, expected) => {
    expect(loadConfig(env, kind).webhookPrivateAddresses).toBe(expected)
  })
  it('an empty value counts as absent', () => {
    expect(loadConfig({ PORT: '', HOST: '', OPLEDGER_TYPES: '' }, 'start')).toMatchObject({ port: 3000, types: [] })
  })
})

describe('values', () => {
  it('reads every key', () => {
    const env = {
      DATABASE_URL: url,
      OPLEDGER_DIRECT_DATABASE_URL: 'postgres://direct/opledger',
      DATABASE_PREPARE: 'off',
      DATABASE_POOL: '20',
      HOST: '0.0.0.0',
      PORT: '8080',
      PUBLIC_URL: 'https://ops.example/base/',
      LOG_LEVEL: 'debug',
      OPLEDGER_TYPES: 'types.yaml, more.json,',
      OPLEDGER_DATA_DIR: '/var/lib/x',
      WORKERS: '3',
      WORKER_CONCURRENCY: '16',
    }
    expect(loadConfig(env, 'api')).toMatchObject({
      databaseUrl: url,
      directDatabaseUrl: 'postgres://direct/opledger',
      databasePrepare: false,
      databasePool: 20,
      host: '0.0.0.0',
      port: 8080,
      publicUrl: 'https://ops.example/base',
      logLevel: 'debug',
      types: [path.resolve('types.yaml'), path.resolve('more.json')],
      dataDir: '/var/lib/x',
      workers: 3,
      workerConcurrency: 16,
    })
  })
  it('is frozen', () => {
    const config = loadConfig({ OPLEDGER_TYPES: 'a.yaml' }, 'start')
    expect([config, config.types, config.env].every((part) => Object.isFrozen(part))).toBe(true)
  })
  it.each([
    ['0.0.0.0', 'http://localhost:1'],
    ['::', 'http://localhost:1'],
    ['::1', 'http://[::1]:1'],
    ['10.0.0.1', 'http://10.0.0.1:1'],
  ])('a client reaches %s at %s', (host, expected) => {
    expect(localUrl(host, 1)).toBe(expected)
  })
})

describe('refusals are one line that names the key', () => {
  it.each<[string, ProcessKind, Environment]>([
    ['PORT', 'start', { PORT: 'abc' }],
    ['PORT', 'start', { PORT: '0' }],
    ['PORT', 'start', { PORT: '65536' }],
    ['PORT', 'start', { PORT: '3000.5' }],
    ['PORT', 'start', { PORT: '-1' }],
    ['HOST', 'start', { HOST: 'a b' }],
    ['WORKERS', 'start', { WORKERS: '0' }],
    ['WORKER_CONCURRENCY', 'start', { WORKER_CONCURRENCY: '1e3' }],
    ['DATABASE_POOL', 'start', { DATABASE_POOL: '1' }],
    ['DATABASE_PREPARE', 'start', { DATABASE_PREPARE: 'yes' }],
    ['LOG_LEVEL', 'start', { LOG_LEVEL: 'verbose' }],
    ['PUBLIC_URL', 'start', { PUBLIC_URL: 'ftp://x' }],
    ['PUBLIC_URL', 'start', { PUBLIC_URL: 'https://x/?a=1' }],
    ['PUBLIC_URL', 'start', { PUBLIC_URL: 'x' }],
    ['AUTH', 'start', { AUTH: 'none' }],
    ['AUTH', 'start', { AUTH: 'off', HOST: '0.0.0.0' }],
    ['AUTH', 'api', { DATABASE_URL: url, AUTH: 'off', HOST: '::' }],
    ['AUTH', 'api', { DATABASE_URL: url, AUTH: 'off', HOST: '127.0.0.1.example' }],
    ['DATABASE_URL', 'api', {}],
    ['DATABASE_URL', 'worker', { DATABASE_URL: '' }],
    ['DATABASE_URL', 'migrate', {}],
    ['DATABASE_URL', 'api', { DATABASE_URL: 'mysql://me:hunter2@x/y' }],
    ['DATABASE_URL', 'api', { DATABASE_URL: 'hunter2' }],
    ['DATABASE_URL', 'api', { DATABASE_URL: url, DATABASE_URL_FILE: '/x' }],
    ['DATABASE_URL_FILE', 'api', { DATABASE_URL_FILE: '/does/not/exist' }],
    [
      'OPLEDGER_DIRECT_DATABASE_URL',
      'api',
      { DATABASE_URL: url, OPLEDGER_DIRECT_DATABASE_URL: 'mysql://me:hunter2@x/y' },
    ],
    ['OPLEDGER_DIRECT_DATABASE_URL', 'start', { OPLEDGER_DIRECT_DATABASE_URL: url }],
    ['OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES', 'start', { OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'yes' }],
    ['OPLEDGER_RATE_LIMIT', 'start', { OPLEDGER_RATE_LIMIT: 'on' }],
    ['OPLEDGER_RATE_LIMIT', 'start', { OPLEDGER_RATE_LIMIT: 'read=0' }],
    ['OPLEDGER_RATE_LIMIT', 'start', { OPLEDGER_RATE_LIMIT: 'read=5, delete=5' }],
    ['OPLEDGER_TRUSTED_PROXIES', 'start', { OPLEDGER_TRUSTED_PROXIES: 'loadbalancer' }],
    ['OPLEDGER_TRUSTED_PROXIES', 'start', { OPLEDGER_TRUSTED_PROXIES: '10.0.0.0/33' }],
    ['OPLEDGER_TRUSTED_PROXIES', 'start', { OPLEDGER_TRUSTED_PROXIES: '10.0.0.0/8/8' }],
    ['OPLEDGER_TRUSTED_PROXIES', 'start', { OPLEDGER_TRUSTED_PROXIES: Array(101).fill('::1').join(' ') }],
    ['OPLEDGER_WEBHOOK_SECRET', 'start', { OPLEDGER_WEBHOOK_SECRET: 'hunter2' }],
    ['OPLEDGER_WEBHOOK_SECRET', 'api', { DATABASE_URL: url, OPLEDGER_WEBHOOK_SECRET: secretOf(23) }],
    ['OPLEDGER_WEBHOOK_SECRET', 'worker', { DATABASE_URL: url, OPLEDGER_WEBHOOK_SECRET: secretOf(65) }],
    ['OPLEDGER_WEBHOOK_SECRET', 'start', { OPLEDGER_WEBHOOK_SECRET: `${secretOf(24)} hunter2` }],
    ['OPLEDGER_WEBHOOK_SECRET', 'start', { OPLEDGER_WEBHOOK_SECRET_FILE: file('bad-webhook', 'hunter2') }],
    ['OPLEDGER_WEBHOOK_SECRET', 'start', { OPLEDGER_WEBHOOK_SECRET: 'hunter2', OPLEDGER_WEBHOOK_SECRET_FILE: '/x' }],
    ['OPLEDGER_WEBHOOK_SECRET_FILE', 'start', { OPLEDGER_WEBHOOK_SECRET_FILE: '/does/not/exist' }],
    ['OPLEDGER_TYPE', 'start', { OPLEDGER_TYPE: 'x.yaml' }],
    ['OPLEDGER_SECRET', 'start', { OPLEDGER_SECRET: 'hunter2' }],
    ['OPLEDGER_SECRET_', 'start', { OPLEDGER_SECRET_: 'hunter2' }],
    ['OPLEDGER_SECRET_A_FILE', 'start', { OPLEDGER_SECRET_A_FILE: '/does/not/exist' }],
    ['OPLEDGER_SECRET_A', 'start', { OPLEDGER_SECRET_A: 'hunter2', OPLEDGER_SECRET_A_FILE: '/x' }],
  ])('%s for %s with %j', (key, kind, env) => {
    let error: unknown
    try {
      loadConfig(env, kind)
    } catch (caught) {
      error = caught
    }
    expect(error).toBeInstanceOf(ConfigurationError)
    const { message } = error as ConfigurationError
    expect(message.startsWith(`${key}: `)).toBe(true)
    expect(message).not.toContain('\n')
    expect(message).not.toContain('hunter2')
  })
  it('an empty secret file', () => {
    expect(() => loadConfig({ OPLEDGER_SECRET_A_FILE: file('empty', '\n') }, 'start')).toThrow(
      /^OPLEDGER_SECRET_A_FILE: /,
    )
  })
})

describe('secrets', () => {
  const env = {
    DATABASE_URL_FILE: file('url', `${url}\n`),
    OPLEDGER_SECRET_TOKEN: 'hunter2',
    OPLEDGER_SECRET_OTHER_FILE: file('other', 'hunter3\r\n'),
    DIRECTORY_URL: 'http://directory.example',
  }
  const config = loadConfig(env, 'api')

  it('come from the environment or from a file', () => {
    expect(config.databaseUrl).toBe(url)
    expect([config.secret('TOKEN'), config.secret('OTHER'), config.secret('NONE')]).toEqual([
      'hunter2',
      'hunter3',
      undefined,
    ])
  })
  it('of webhooks are one or several', () => {
    const [old, fresh] = [secretOf(24), secretOf(64)]
    const read = (text: string) => loadConfig({ OPLEDGER_WEBHOOK_SECRET: text }, 'start').webhookSecrets
    expect(read(old)).toEqual([old])
    expect(read(` ${fresh}\t${old} `)).toEqual([fresh, old])
    const path = file('webhook', `${fresh}\n${old}\n`)
    expect(loadConfig({ OPLEDGER_WEBHOOK_SECRET_FILE: path }, 'start').webhookSecrets).toEqual([fresh, old])
  })
  it('of webhooks are shown nowhere', () => {
    const secret = secretOf(32)
    const shown = loadConfig({ OPLEDGER_WEBHOOK_SECRET: secret }, 'start')
    for (const printed of [JSON.stringify(shown), inspect(shown, { depth: 9 })]) {
      expect(printed).not.toContain(secret)
      expect(printed).toContain('[redacted]')
    }
    expect(shown.env).toEqual({})
  })
  it('are not in what placeholders may read', () => {
    expect(config.env).toEqual({ DIRECTORY_URL: 'http://directory.example' })
  })
  it('are not in the printed config', () => {
    for (const printed of [JSON.stringify(config), inspect(config, { depth: 9 }), `${config}`]) {
      expect(printed).not.toMatch(/hunter|db\.example/)
    }
  })
})

it('children of start do not speak to the service manager of start', () => {
  const keys = ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']
  for (const key of keys) vi.stubEnv(key, '/run/notify')
  const decided = { databaseUrl: url, auth: 'off', webhookPrivateAddresses: 'allow' } as const
  const env = childEnvironment({ ...decided, webhookSecretFile: null, downloadSecretFile: null })
  vi.unstubAllEnvs()
  expect(keys.filter((key) => key in env)).toEqual([])
})

it('children of start are told the database and the decided AUTH', () => {
  const decided = {
    databaseUrl: url,
    auth: 'off',
    webhookPrivateAddresses: 'allow',
    webhookSecretFile: null,
    downloadSecretFile: null,
  } as const
  expect(childEnvironment(decided)).toMatchObject({
    DATABASE_URL: url,
    AUTH: 'off',
    OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'allow',
  })
  for (const key of ['DATABASE_URL_FILE', 'OPLEDGER_WEBHOOK_SECRET_FILE', 'OPLEDGER_DOWNLOAD_SECRET_FILE']) {
    expect(childEnvironment(decided)).not.toHaveProperty(key)
  }
  expect(childEnvironment({ ...decided, webhookSecretFile: '/x', downloadSecretFile: '/y' })).toMatchObject({
    OPLEDGER_WEBHOOK_SECRET_FILE: '/x',
    OPLEDGER_DOWNLOAD_SECRET_FILE: '/y',
  })
})

describe('rate limits', () => {
  const standard = { read: 500, write: 200, work: 500, address: 50 }
  it.each<[ProcessKind, Environment, object | null]>([
    ['start', {}, null],
    ['start', { AUTH: 'keys' }, standard],
    ['api', { DATABASE_URL: url }, standard],
    ['api', { DATABASE_URL: url, AUTH: 'off' }, null],
    ['api', { DATABASE_URL: url, OPLEDGER_RATE_LIMIT: 'off' }, null],
    ['api', { DATABASE_URL: url, OPLEDGER_RATE_LIMIT: 'write=20' }, { ...standard, write: 20 }],
    ['start', { OPLEDGER_RATE_LIMIT: 'read=1 work=2' }, { ...standard, read: 1, work: 2 }],
  ])('of %s with %j are %j', (kind, env, limits) => expect(loadConfig(env, kind).rateLimits).toEqual(limits))

  it('addresses of proxies come with spaces or commas between', () => {
    const config = loadConfig({ OPLEDGER_TRUSTED_PROXIES: '10.0.0.7, 10.1.0.0/16 fd00::/8' }, 'start')
    expect(config.trustedProxies).toEqual(['10.0.0.7', '10.1.0.0/16', 'fd00::/8'])
  })
})

describe('artifacts', () => {
  const s3 = { OPLEDGER_ARTIFACT_STORE: 's3://bucket/some/where/', OPLEDGER_S3_REGION: 'eu-central-1' }
  const keys = { OPLEDGER_S3_ACCESS_KEY_ID: 'id', OPLEDGER_S3_SECRET_ACCESS_KEY: 'hunter2' }
  const secret = 'hunter2-hunter2-hunter2-hunter2-hunter2'

  it('are kept in the data directory, or where it is said', () => {
    expect(loadConfig({}, 'start')).toMatchObject({
      artifactStore: { kind: 'file', directory: path.resolve('.opledger/artifacts'), required: false },
      downloadSecret: null,
    })
    expect(loadConfig({ OPLEDGER_ARTIFACT_STORE: 'file:here' }, 'start').artifactStore).toEqual({
      kind: 'file',
      directory: path.resolve('here'),
      required: true,
    })
    expect(loadConfig(s3, 'start').artifactStore).toEqual({
      kind: 's3',
      bucket: 'bucket',
      prefix: 'some/where',
      endpoint: null,
      region: 'eu-central-1',
      credentials: null,
      forcePathStyle: false,
    })
    const own = { ...s3, ...keys, OPLEDGER_S3_ENDPOINT: 'http://minio:9000', OPLEDGER_S3_FORCE_PATH_STYLE: 'on' }
    expect(loadConfig(own, 'start').artifactStore).toMatchObject({
      endpoint: 'http://minio:9000',
      credentials: { accessKeyId: 'id', secretAccessKey: 'hunter2' },
      forcePathStyle: true,
    })
  })

  it.each<[string, Environment, string]>([
    ['no store', { OPLEDGER_ARTIFACT_STORE: 'ftp://x' }, 'OPLEDGER_ARTIFACT_STORE: "ftp://x" is neither'],
    ['no region', { OPLEDGER_ARTIFACT_STORE: 's3://bucket' }, 'OPLEDGER_S3_REGION: is needed by'],
    ['half a key', { ...s3, OPLEDGER_S3_ACCESS_KEY_ID: 'id' }, 'OPLEDGER_S3_SECRET_ACCESS_KEY: the access key and'],
    ['the other half', { ...s3, OPLEDGER_S3_SECRET_ACCESS_KEY: 'x' }, 'OPLEDGER_S3_ACCESS_KEY_ID: the access key and'],
    ['S3 for a directory', { OPLEDGER_S3_REGION: 'x' }, 'OPLEDGER_S3_REGION: has no meaning unless'],
    ['an endpoint', { ...s3, OPLEDGER_S3_ENDPOINT: 'minio' }, 'OPLEDGER_S3_ENDPOINT: "minio" is not an http(s) URL'],
    ['a short secret', { OPLEDGER_DOWNLOAD_SECRET: 'hunter2' }, 'OPLEDGER_DOWNLOAD_SECRET: has fewer than 32'],
    ['two secrets', { OPLEDGER_DOWNLOAD_SECRET: secret, OPLEDGER_DOWNLOAD_SECRET_FILE: '/x' }, 'not both'],
    ['a file of a plain key', { OPLEDGER_S3_REGION_FILE: '/x' }, 'OPLEDGER_S3_REGION_FILE: no such setting'],
  ])('refuses %s', (_name, env, message) => {
    let text = ''
    try {
      loadConfig(env, 'start')
    } catch (error) {
      text = error instanceof ConfigurationError ? error.message : ''
    }
    expect(text).toContain(message)
    expect(text).not.toContain('hunter2')
  })

  it('secrets may come from files, and are shown nowhere', () => {
    const config = loadConfig(
      {
        ...s3,
        OPLEDGER_S3_ACCESS_KEY_ID: 'id',
        OPLEDGER_S3_SECRET_ACCESS_KEY_FILE: file('s3', 'hunter2\n'),
        OPLEDGER_DOWNLOAD_SECRET_FILE: file('download', `${secret}\n`),
      },
      'start',
    )
    expect(config.downloadSecret).toBe(secret)
    expect(config.artifactStore).toMatchObject({ credentials: { secretAccessKey: 'hunter2' } })
    for (const printed of [JSON.stringify(config), inspect(config, { depth: 9 })])
      expect(printed).not.toMatch(/hunter2/)
    expect(Object.keys(config.env).filter((key) => /SECRET/.test(key))).toEqual([])
  })
})

describe('how the command line reaches a service', () => {
  it('is by what start would run here, unless it is said', () => {
    expect(loadClientSettings({})).toEqual({ url: 'http://127.0.0.1:3000', key: null })
    expect(loadClientSettings({ HOST: '0.0.0.0', PORT: '8080' }).url).toBe('http://localhost:8080')
    const env = { OPLEDGER_URL: 'https://ops.example/base/', OPLEDGER_KEY: 'opl_env' }
    expect(loadClientSettings(env)).toEqual({ url: 'https://ops.example/base', key: 'opl_env' })
    expect(loadClientSettings(env, { url: 'http://other:1', key: 'opl_given' })).toEqual({
      url: 'http://other:1',
      key: 'opl_given',
    })
    expect(loadClientSettings({ OPLEDGER_KEY_FILE: file('client-key', 'opl_file\n') }).key).toBe('opl_file')
  })

  it.each<[string, Environment, { url?: string; key?: string }]>([
    ['OPLEDGER_URL', { OPLEDGER_URL: 'ops.example' }, {}],
    ['--url', {}, { url: 'http://ops.example/?x=1' }],
    ['--url', {}, { url: 'http://me:hunter2@ops.example' }],
    ['OPLEDGER_KEY', { OPLEDGER_KEY: 'hunter2' }, {}],
    ['--key', {}, { key: 'hunter2' }],
    ['OPLEDGER_KEY', { OPLEDGER_KEY: 'opl_a', OPLEDGER_KEY_FILE: '/x' }, {}],
    ['OPLEDGER_KEYS', { OPLEDGER_KEYS: 'opl_a' }, {}],
    ['PORT', { PORT: 'x' }, {}],
  ])('names %s where it is wrong, and never its secret', (name, env, given) => {
    const wrong = () => loadClientSettings(env, given)
    expect(wrong).toThrow(ConfigurationError)
    expect(wrong).toThrow(new RegExp(`^${name}: `))
    expect(wrong).not.toThrow(/hunter2/)
  })

  it('keeps its key from placeholders', () => {
    expect(loadConfig({ OPLEDGER_KEY: 'opl_a', X: 'y' }, 'start').env).toEqual({ X: 'y' })
  })
})

describe('audit and traces', () => {
  const collector = { DATABASE_URL: url, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' }

  it('the audit is kept for a year, or for what is said, and a month at least', () => {
    expect(loadConfig({}, 'start').auditDays).toBe(365)
    expect(loadConfig({ OPLEDGER_AUDIT_DAYS: '30' }, 'start').auditDays).toBe(30)
    expect(() => loadConfig({ OPLEDGER_AUDIT_DAYS: '29' }, 'start')).toThrow(/^OPLEDGER_AUDIT_DAYS: "29"/)
  })

  it('nobody takes traces unless a collector is named, and it is not turned off', () => {
    expect(loadConfig({ DATABASE_URL: url }, 'api').tracing).toBeNull()
    expect(loadConfig({ ...collector, OTEL_SDK_DISABLED: 'true' }, 'api').tracing).toBeNull()
    expect(loadConfig(collector, 'api').tracing).toEqual({
      endpoint: 'http://collector:4318',
      headers: {},
      serviceName: 'opledger',
    })
    const bad = { ...collector, OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' }
    expect(() => loadConfig(bad, 'api')).toThrow(/^OTEL_EXPORTER_OTLP_ENDPOINT: /)
  })

  it('the headers of a collector are secrets: read as the standard writes them, and shown to nobody', () => {
    const headers = 'authorization=Bearer%20hunter2,x-tenant=a=b,odd=100%'
    const config = loadConfig({ ...collector, OTEL_EXPORTER_OTLP_HEADERS: headers }, 'api')
    expect(config.tracing?.headers).toEqual({ authorization: 'Bearer hunter2', 'x-tenant': 'a=b', odd: '100%' })
    expect(config.env.OTEL_EXPORTER_OTLP_HEADERS).toBeUndefined()
    for (const printed of [JSON.stringify(config), inspect(config, { depth: 9 })])
      expect(printed).not.toContain('hunter2')
    const fromFile = { ...collector, OTEL_EXPORTER_OTLP_HEADERS_FILE: file('otel', 'key=hunter2\n') }
    expect(loadConfig(fromFile, 'api').tracing?.headers).toEqual({ key: 'hunter2' })
    const bad = { ...collector, OTEL_EXPORTER_OTLP_HEADERS: 'hunter2' }
    expect(() => loadConfig(bad, 'api')).toThrow(/^OTEL_EXPORTER_OTLP_HEADERS: (?!.*hunter2)/)
  })
})

describe('tokens', () => {
  const given = {
    DATABASE_URL: url,
    OPLEDGER_JWT_ISSUER: 'https://id.example/',
    OPLEDGER_JWT_AUDIENCE: 'ops',
    OPLEDGER_JWT_JWKS_URL: 'https://id.example/keys',
  }

  it('are taken of nobody unless told', () => {
    expect(loadConfig({}, 'start').jwt).toBeNull()
    expect(loadConfig({ DATABASE_URL: url, OPLEDGER_JWT_ISSUER: '' }, 'api').jwt).toBeNull()
  })

  it('have claims with usual names, or with those that are set', () => {
    expect(loadConfig(given, 'api').jwt).toEqual({
      issuer: 'https://id.example/',
      audience: 'ops',
      jwksUrl: 'https://id.example/keys',
      tenant: null,
      tenantClaim: 'tenant',
      nameClaim: 'sub',
      scopesClaim: 'scope',
    })
    const others = {
      OPLEDGER_JWT_TENANT_CLAIM: 'https://acme.example/org',
      OPLEDGER_JWT_NAME_CLAIM: 'email',
      OPLEDGER_JWT_SCOPES_CLAIM: 'permissions',
    }
    expect(loadConfig({ ...given, ...others }, 'api').jwt).toMatchObject({
      tenantClaim: 'https://acme.example/org',
      nameClaim: 'email',
      scopesClaim: 'permissions',
    })
    expect(loadConfig({ ...given, OPLEDGER_JWT_TENANT: 'acme' }, 'api').jwt?.tenant).toBe('acme')
  })

  it.each(['http://127.0.0.1:9/keys', 'http://localhost/keys', 'http://[::1]:9/keys'])(
    'take keys from %s',
    (jwksUrl) => {
      expect(loadConfig({ ...given, OPLEDGER_JWT_JWKS_URL: jwksUrl }, 'api').jwt?.jwksUrl).toBe(jwksUrl)
    },
  )

  it.each<[string, Record<string, string>]>([
    ['OPLEDGER_JWT_JWKS_URL', { OPLEDGER_JWT_JWKS_URL: 'http://id.example/keys' }],
    ['OPLEDGER_JWT_JWKS_URL', { OPLEDGER_JWT_JWKS_URL: 'http://127.0.0.1.evil.example/keys' }],
    ['OPLEDGER_JWT_JWKS_URL', { OPLEDGER_JWT_JWKS_URL: 'https://me:hunter2@id.example/keys' }],
    ['OPLEDGER_JWT_JWKS_URL', { OPLEDGER_JWT_JWKS_URL: 'file:///keys' }],
    ['OPLEDGER_JWT_JWKS_URL', { OPLEDGER_JWT_JWKS_URL: '' }],
    ['OPLEDGER_JWT_ISSUER', { OPLEDGER_JWT_ISSUER: '' }],
    ['OPLEDGER_JWT_AUDIENCE', { OPLEDGER_JWT_AUDIENCE: '' }],
    ['OPLEDGER_JWT_TENANT_CLAIM', { OPLEDGER_JWT_TENANT: 'acme', OPLEDGER_JWT_TENANT_CLAIM: 'org' }],
    ['OPLEDGER_JWT_NAME_CLAIM', { OPLEDGER_JWT_NAME_CLAIM: 'a b' }],
    ['OPLEDGER_JWT_\\w+', { AUTH: 'off' }],
    ['OPLEDGER_JWT_SECRET', { OPLEDGER_JWT_SECRET: 'x' }],
  ])('stop the start with one line that names %s', (name, change) => {
    const wrong = () => loadConfig({ ...given, ...change }, 'api')
    expect(wrong).toThrow(ConfigurationError)
    expect(wrong).toThrow(new RegExp(`^${name}: [^\\n]+$`))
  })

  it('are what the command line may come with, too', () => {
    expect(loadClientSettings({ OPLEDGER_KEY: 'eyJhbGciOiJFUzI1NiJ9.e30.c2ln' }).key).toBe(
      'eyJhbGciOiJFUzI1NiJ9.e30.c2ln',
    )
  })
})
