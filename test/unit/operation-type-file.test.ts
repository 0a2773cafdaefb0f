import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { ConfigurationError } from '../../src/domain/errors.ts'
import type { OperationType } from '../../src/domain/operation-type.ts'
import { loadOperationTypes, type TypeRegistry } from '../../src/operation-types/registry.ts'

let directory: string
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'opledger-types-'))
})
afterAll(() => rm(directory, { recursive: true, force: true }))

const ENV = { DIRECTORY_URL: 'http://directory.test:8080/api/' }
const load = (...paths: string[]): Promise<TypeRegistry> =>
  loadOperationTypes({ paths, env: ENV, secrets: (name) => (name === 'TOKEN' ? 's3cret' : undefined) })

const write = async (name: string, text: string): Promise<string> => {
  const file = path.join(directory, name)
  await writeFile(file, text)
  return file
}

type Entry = Record<string, unknown>
const request = { url: '{env.DIRECTORY_URL}/grants' }
const outcome = [{ status: [200], state: 'applied' }]
const http: Entry = { request, outcome }
const minimal: Entry = { name: 'grant-role', version: 3, effect: 'external', http }

/** A type file that holds one entry. */
const loadEntry = async (entry: Entry): Promise<OperationType> => {
  const file = await write('types.yaml', stringify({ types: [entry] }))
  const [type] = (await load(file)).list()
  if (type === undefined) throw new Error('no type was loaded')
  return type
}

/** The message that stops the start, without the directory. */
const refusal = async (promise: Promise<unknown>): Promise<string> => {
  const error = await promise.then(
    () => new Error('was not refused'),
    (thrown: Error) => thrown,
  )
  expect(error).toBeInstanceOf(ConfigurationError)
  expect(error.message).not.toContain('\n')
  return error.message.replaceAll(`${directory}/`, '')
}

describe('a type file', () => {
  it('fills in the documented defaults', async () => {
    const type = await loadEntry(minimal)
    expect(type).toMatchObject({
      name: 'grant-role',
      version: 3,
      description: null,
      owner: null,
      effect: 'external',
      risk: 'medium',
      touches: [],
      approval: 'none',
      idempotencyKey: 'required',
      batch: { maxItems: 100, maxMs: 1_000 },
      parallelism: 4,
      concurrency: 16,
      ratePerSecond: null,
      leaseMs: 30_000,
      stallMs: 60_000,
      maxCancelMs: 30_000,
      retry: { maxAttempts: 3, baseMs: 500, maxMs: 30_000 },
      stopIf: ['ambiguous_effect_targets > 0', 'downstream_error_rate_5m > 5%', 'replay_reject_rate > 10%'],
      retention: { itemsDays: 30, ledgerDays: 90 },
      mask: [],
      onAbsent: 'case',
      providerIdempotentMs: 0,
      compensation: 'none',
      noCompensationReason: null,
      inputSchema: { type: 'object' },
      executor: { kind: 'external', callTimeoutMs: 5_000, lookup: null },
    })
    expect(type.codeVersion).toMatch(/^sha256:[0-9a-f]{16}$/)
  })

  it('case 21: takes odd values as they are', async () => {
    const type = await loadEntry({
      ...minimal,
      description: 'odd',
      owner: 'team',
      risk: 'high',
      touches: ['permission', 'permission'],
      approval: 'always',
      idempotency_key: 'optional',
      batch: { max_items: 7, max_ms: 333 },
      parallelism: 3,
      concurrency: 17,
      rate_limit: { per_second: 0.5 },
      lease_seconds: 13,
      stall_ms: 7_777,
      max_cancel_seconds: 11,
      retry: { max_attempts: 5, base_ms: 77, max_ms: 777 },
      stop_if: ['replay_reject_rate > 2.5%', 'ambiguous_effect_targets > 3', 'downstream_error_rate_5m>0.05'],
      retention: { items_days: 5, ledger_days: 9 },
      mask: ['/user', '/a~1b/0'],
      code_version: 'v7',
      http: {
        ...http,
        request: { ...request, timeout_ms: 1_234 },
        lookup: { ...request, after_ms: 99, timeout_ms: 55, outcome: [{ status: [404], state: 'absent' }] },
        on_absent: 'retry',
        provider_idempotent_hours: 1.5,
        compensate: { ...request, method: 'DELETE' },
      },
    })
    expect(type).toMatchObject({
      owner: 'team',
      risk: 'high',
      touches: ['permission'],
      approval: 'always',
      idempotencyKey: 'optional',
      batch: { maxItems: 7, maxMs: 333 },
      parallelism: 3,
      concurrency: 17,
      ratePerSecond: 0.5,
      leaseMs: 13_000,
      stallMs: 7_777,
      maxCancelMs: 11_000,
      retry: { maxAttempts: 5, baseMs: 77, maxMs: 777 },
      stopIf: ['replay_reject_rate > 2.5%', 'ambiguous_effect_targets > 3', 'downstream_error_rate_5m>0.05'],
      retention: { itemsDays: 5, ledgerDays: 9 },
      mask: ['/user', '/a~1b/0'],
      codeVersion: 'v7',
      onAbsent: 'retry',
      providerIdempotentMs: 5_400_000,
      compensation: 'available',
      executor: { callTimeoutMs: 1_234, lookup: { afterMs: 99, timeoutMs: 55 } },
    })
  })

  it.each<[string, Entry, string]>([
    ['unknown member', { ...minimal, lease_secnds: 3 }, 'lease_secnds: unknown member'],
    ['unknown member below', { ...minimal, retry: { attempts: 3 } }, 'retry.attempts: unknown member'],
    ['several', { ...minimal, version: 0, lease_seconds: 1 }, '(and 1 more)'],
    ['bad range', { ...minimal, lease_seconds: 1 }, 'lease_seconds: Too small'],
    ['bad name', { ...minimal, name: 'Grant Role' }, 'name: must be lower-case words'],
    ['bad touch', { ...minimal, touches: ['mony'] }, 'touches.0: Invalid option'],
    [
      'artifact',
      { ...minimal, effect: 'artifact' },
      'effect: artifact needs code: write the type with defineOperationType',
    ],
    ['transactional', { ...minimal, effect: 'transactional' }, 'effect: transactional needs code'],
    ['no http', { ...minimal, http: undefined }, 'http: is required for effect external'],
    ['no compensation', { ...minimal, touches: ['money'] }, 'no_compensation: required because touches names money'],
    [
      'both compensations',
      { ...minimal, no_compensation: 'why', http: { ...http, compensate: request } },
      'no_compensation: must not stand beside compensate',
    ],
    [
      'retry order',
      { ...minimal, retry: { base_ms: 500, max_ms: 10 } },
      'retry.max_ms: must be at least base_ms (500)',
    ],
    [
      'retention order',
      { ...minimal, retention: { items_days: 30, ledger_days: 7 } },
      'retention.ledger_days: must be at least items_days (30)',
    ],
    [
      'lease below the call',
      { ...minimal, lease_seconds: 6 },
      'lease_seconds: must be more than the call timeout plus a margin (5000 ms + 1000 ms)',
    ],
    ['stall below the call', { ...minimal, stall_ms: 6_000 }, 'stall_ms: must be more than the call timeout'],
    ['stop metric', { ...minimal, stop_if: ['errors > 5'] }, 'stop_if.0: must read "metric > number"'],
    ['stop rate', { ...minimal, stop_if: ['replay_reject_rate > 500%'] }, 'stop_if.0: must read'],
    ['stop count', { ...minimal, stop_if: ['ambiguous_effect_targets > 5%'] }, 'stop_if.0: must read'],
    ['mask', { ...minimal, mask: ['user'] }, 'mask.0: must be a JSON pointer such as /user'],
    [
      'effect_key',
      { ...minimal, mask: ['/user'], effect_key: 'x:{input.user.id}' },
      'effect_key: {input.user.id} cannot be part of it: mask hides /user',
    ],
    [
      'effect_key',
      { ...minimal, mask: ['/user/id'], effect_key: 'x:{input.user}' },
      'effect_key: {input.user} cannot be part of it: mask hides /user/id',
    ],
    [
      'schema',
      { ...minimal, input: { type: 'objekt' } },
      'input: is not a usable JSON Schema 2020-12: schema is invalid',
    ],
    ['schema keyword', { ...minimal, input: { requird: ['a'] } }, 'unknown keyword: "requird"'],
    ['schema format', { ...minimal, input: { properties: { a: { format: 'emial' } } } }, 'unknown format "emial"'],
    ['remote schema', { ...minimal, input: { $ref: 'http://elsewhere/x' } }, "can't resolve reference"],
    ['async schema', { ...minimal, input: { $async: true, type: 'object' } }, '$async schemas are not supported'],
    ['key placeholder', { ...minimal, effect_key: 'x:{item.kye}' }, 'effect_key: unknown placeholder {item.kye}'],
    ['secret in key', { ...minimal, effect_key: '{secret.TOKEN}:{item.key}' }, 'effect_key: {secret.*} cannot be part'],
    ['key in key', { ...minimal, effect_key: '{effect_key}' }, 'effect_key: {effect_key} cannot be part of it'],
    ['constant key', { ...minimal, effect_key: 'grant' }, 'effect_key: names no {item.key} or {input.*}'],
    ['no rules', { ...minimal, http: { ...http, outcome: [] } }, 'http.outcome: Too small'],
    ['infinite', { ...minimal, rate_limit: { per_second: Infinity } }, 'rate_limit.per_second: is not a finite number'],
    ['huge', { ...minimal, version: 2 ** 60 }, 'version: is too large a number'],
    ['NUL', { ...minimal, description: 'a\0b' }, 'description: holds U+0000 or a lone surrogate'],
  ])('stops the start: %s', async (_name, entry, message) => {
    const line = await refusal(loadEntry(entry))
    expect(line).toContain(`types.yaml: type ${JSON.stringify(entry.name)}: `)
    expect(line).toContain(message)
  })

  it.each<[string, Entry, string]>([
    [
      'url placeholder',
      { request: { url: '{env.DIRECTORY_URL}/{item.kye}' } },
      'http.request.url: unknown placeholder',
    ],
    ['unset variable', { request: { url: '{env.NOWHERE}/' } }, 'the environment variable NOWHERE is not set'],
    [
      'unset secret',
      { request: { ...request, headers: { Authorization: 'Bearer {secret.NONE}' } } },
      'http.request.headers.Authorization: {secret.NONE}: the environment variable OPLEDGER_SECRET_NONE is not set',
    ],
    ['host from input', { request: { url: 'http://{input.host}/' } }, 'http.request.url: must start with a fixed'],
    ['host grown by input', { request: { url: '{env.DIRECTORY_URL}.{input.x}#' } }, 'visible ASCII without "#"'],
    ['port from input', { request: { url: 'http://host:{input.port}/' } }, 'must start with a fixed'],
    ['host end from input', { request: { url: 'http://host{item.key}' } }, 'must start with a fixed'],
    ['other scheme', { request: { url: 'ftp://host/' } }, 'must start with a fixed http:// or https:// origin'],
    ['bad host', { request: { url: 'http://a b/' } }, 'must start with a fixed'],
    ['credentials', { request: { url: 'http://u:p@host/' } }, 'http.request.url: credentials belong in a header'],
    ['blank', { request: { url: 'http://host/a b' } }, 'http.request.url: must be visible ASCII'],
    ['GET body', { request: { ...request, method: 'GET', body: {} } }, 'http.request.body: a GET request has no body'],
    ['method', { request: { ...request, method: 'HEAD' } }, 'http.request.method: Invalid option'],
    ['timeout', { request: { ...request, timeout_ms: 1 } }, 'http.request.timeout_ms: Too small'],
    ['header name', { request: { ...request, headers: { 'a b': 'x' } } }, 'headers.a b: is not a header name'],
    ['own header', { request: { ...request, headers: { Host: 'x' } } }, 'headers.Host: is set by the transport'],
    ['twice', { request: { ...request, headers: { A: 'x', a: 'y' } } }, 'headers.a: is given twice'],
    ['header text', { request: { ...request, headers: { A: 'x\ny' } } }, 'the text must be visible ASCII'],
    ['body placeholder', { request: { ...request, body: { a: [{ b: '{x}' }] } } }, 'http.request.body.a.0.b: unknown'],
    ['placeholder name', { request: { ...request, body: { '{type}': 1 } } }, 'placeholders stand in values only'],
    ['class missing', { outcome: [{ status: [409], state: 'failed' }] }, 'http.outcome.0.class: Invalid option'],
    [
      'ambiguous class',
      { outcome: [{ status: [409], state: 'failed', class: 'ambiguous_effect' }] },
      'http.outcome.0.class: Invalid option',
    ],
    ['status', { outcome: [{ status: [99], state: 'applied' }] }, 'http.outcome.0.status.0: Too small'],
    ['state', { outcome: [{ status: [200], state: 'done' }] }, 'http.outcome.0.state: Invalid'],
    ['rule member', { outcome: [{ status: [200], state: 'applied', reff: '/id' }] }, 'http.outcome.0.reff: unknown'],
    [
      'lookup failed',
      { lookup: { ...request, outcome: [{ status: [404], state: 'failed' }] } },
      'http.lookup.outcome.0.state: Invalid',
    ],
    ['lookup body', { lookup: { ...request, body: {}, outcome } }, 'http.lookup.body: unknown member'],
    ['lookup url', { lookup: { url: '{env.DIRECTORY_URL}/{x}', outcome } }, 'http.lookup.url: unknown placeholder {x}'],
    ['compensate url', { compensate: { url: '/relative' } }, 'http.compensate.url: must start with a fixed'],
  ])('stops the start for http: %s', async (_name, change, message) => {
    const line = await refusal(loadEntry({ ...minimal, http: { ...http, ...change } }))
    expect(line).toContain('types.yaml: type "grant-role": http.')
    expect(line).toContain(message)
  })

  it.each<[string[], Entry]>([
    [['customer_data'], { approval: 'none', retention: { itemsDays: 30, ledgerDays: 90 } }],
    [['money'], { approval: 'replay', retention: { itemsDays: 30, ledgerDays: 365 } }],
    [['permission', 'customer_data'], { approval: 'replay', retention: { itemsDays: 30, ledgerDays: 365 } }],
    [['external_send'], { approval: 'replay', retention: { itemsDays: 30, ledgerDays: 90 } }],
  ])('%j sets approval and retention', async (touches, expected) => {
    const type = await loadEntry({ ...minimal, touches, http: { ...http, no_compensation: 'why' } })
    expect(type).toMatchObject({ ...expected, noCompensationReason: 'why' })
  })

  it('keeps a long first retry delay and a long call within their own limits', async () => {
    const long = { ...minimal, lease_seconds: 600, http: { ...http, request: { ...request, timeout_ms: 90_000 } } }
    const type = await loadEntry({ ...long, retry: { base_ms: 60_000 } })
    expect(type).toMatchObject({ retry: { baseMs: 60_000, maxMs: 60_000 }, stallMs: 180_000 })
  })

  it('changes the code version of a type with its own entry only', async () => {
    const other = { ...minimal, name: 'other' }
    const version = async (...entries: Entry[]) =>
      (await load(await write('versions.yaml', stringify({ types: entries })))).get('grant-role')?.codeVersion
    const first = await version(minimal, other)
    expect(await version(minimal, { ...other, version: 9 })).toBe(first)
    expect(await version({ ...minimal, concurrency: 2 }, other)).not.toBe(first)
  })
})

describe('OPLEDGER_TYPES', () => {
  it('reads several files: YAML with anchors and merges, JSON', async () => {
    const yaml = await write(
      'a.yaml',
      `types:
  - &base
    name: first
    version: 1
    effect: external
    http:
      request: { url: "{env.DIRECTORY_URL}/a" }
      outcome: &outcome
        - { status: [200], state: applied }
  - <<: *base
    name: second
    http: { request: { url: "http://host" }, outcome: *outcome }
`,
    )
    const json = await write('b.json', JSON.stringify({ types: [{ ...minimal, name: 'third' }] }))
    const registry = await load(yaml, json)
    expect(registry.list().map(({ name }) => name)).toEqual(['first', 'second', 'third', 'ledger-export'])
    expect(registry.get('second')?.executor.kind).toBe('external')
    expect(registry.get('fourth')).toBeUndefined()
    await registry.close()
  })

  it('offers the examples when it names nothing', async () => {
    const registry = await load()
    expect(registry.list().map(({ name, effect }) => [name, effect])).toEqual([
      ['example-notify', 'external'],
      ['example-import', 'transactional'],
      ['ledger-export', 'artifact'],
    ])
    await registry.close()
  })

  it('refuses one name in two files', async () => {
    const a = await write('a.json', JSON.stringify({ types: [minimal] }))
    const b = await write('b.json', JSON.stringify({ types: [minimal] }))
    expect(await refusal(load(a, b))).toBe('b.json: type "grant-role": name: already defined in a.json')
  })

  it.each([
    ['a.yaml', 'types: [', 'a.yaml: line 1: '],
    ['a.yaml', 'types:\n  - name: a\n    name: b\n', 'a.yaml: line 3: Map keys must be unique'],
    ['a.yaml', 'types: *nowhere', 'a.yaml: Unresolved alias'],
    ['a.yaml', 'types: !!js/function x', 'a.yaml: line 1: Unresolved tag'],
    ['a.yaml', '', 'a.yaml: must be an object with the list "types"'],
    ['a.yaml', 'types: []', 'a.yaml: types: must name at least one type'],
    ['a.yaml', 'typs: []\ntypes: []', 'a.yaml: typs: unknown member'],
    ['a.yaml', 'types: [1]', 'a.yaml: type #1: Invalid input'],
    ['a.yaml', 'types:\n  - &a { name: loop, input: *a }', 'a.yaml:'],
    ['a.json', '{', 'a.json: '],
    ['a.json', '{"types": [{"__proto__": 1}]}', 'type #1: has a member named __proto__'],
    ['a.json', `{"types": [${'['.repeat(40)}${']'.repeat(40)}]}`, 'deeper than 32 levels'],
    ['a.json', JSON.stringify({ types: Array(501).fill(minimal) }), 'a.json: types: more than 500'],
    ['a.json', ' '.repeat(1024 * 1024 + 1), 'a.json: larger than 1048576 bytes'],
    ['a.toml', '', 'OPLEDGER_TYPES: a.toml: must end in .yaml'],
  ])('case %#: %s stops the start', async (name, text, message) => {
    expect(await refusal(load(await write(name, text)))).toContain(message)
  })

  it('refuses a file whose aliases unfold without end', async () => {
    const levels = Array.from({ length: 20 }, (_, level) => {
      const alias = `*l${level}`
      return `l${level + 1}: &l${level + 1} [${Array(20)
        .fill(level === 0 ? 'x' : alias)
        .join(', ')}]`
    })
    const file = await write('bomb.yaml', `${levels.join('\n')}\ntypes: *l20\n`)
    expect(await refusal(load(file))).toContain('bomb.yaml: Excessive alias count')
  })

  it('names a file that is not there', async () => {
    expect(await refusal(load(path.join(directory, 'none.yaml')))).toBe('OPLEDGER_TYPES: none.yaml: no such file')
    expect(
      await refusal(load(path.join(directory, '..', path.basename(directory), 'x.yaml', '..', 'none.json'))),
    ).toContain('no such file')
  })
})

describe('an item of a declarative type', () => {
  const definition: Entry = {
    ...minimal,
    input: {
      type: 'object',
      required: ['role'],
      additionalProperties: false,
      properties: { role: { type: 'string' }, user: {}, tag: {}, n: { type: 'integer' }, at: { format: 'date-time' } },
    },
    effect_key: 'grant:{input.role}:{item.key}',
    http: {
      ...http,
      request: { ...request, url: '{env.DIRECTORY_URL}/users/{input.user}', headers: { 'X-Tag': '{input.tag}' } },
      lookup: { url: '{env.DIRECTORY_URL}/grants/{effect_key}', outcome },
    },
  }
  const root = 'op_0'

  it.each([
    [{ role: 'a', user: 'u' }, []],
    [{ role: 'a', user: 7, tag: true }, []],
    [{ user: 'u' }, [{ pointer: '/role', detail: 'is required' }]],
    [{ role: 'a', user: 'u', 'a/b~': 1 }, [{ pointer: '/a~1b~0', detail: 'is not a known member' }]],
    [{ role: 1, user: 'u' }, [{ pointer: '/role', detail: 'must be string' }]],
    [{ role: 'a', user: 'u', n: '5' }, [{ pointer: '/n', detail: 'must be integer' }]],
    [{ role: 'a', user: 'u', at: 'today' }, [{ pointer: '/at', detail: 'must match format "date-time"' }]],
    ['text', [{ pointer: '', detail: 'must be object' }]],
    [{ role: 'a' }, [{ pointer: '/user', detail: 'is required: it is part of the request URL' }]],
    [{ role: 'a', user: null }, [{ pointer: '/user', detail: expect.stringContaining('must be a string, number or') }]],
    [{ role: 'a', user: 'u', tag: {} }, [{ pointer: '/tag', detail: expect.stringContaining('must be a string') }]],
  ])('%j is checked without coercion', async (input, issues) => {
    const type = await loadEntry(definition)
    expect(type.validateInput(input)).toEqual(issues)
  })

  it('points at most at 20 faults', async () => {
    const type = await loadEntry(definition)
    const surplus = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`m${index}`, 1]))
    expect(type.validateInput({ role: 'a', user: 'u', ...surplus })).toHaveLength(20)
  })

  it.each([
    [{ role: 'a', user: 'u' }, 'k', { key: 'grant:a:k' }],
    [{ role: 'é 😀', user: 'u' }, 'k', { key: 'grant:é 😀:k' }],
    [{ user: 'u' }, 'k', { issue: { pointer: '/role', detail: 'is required: it is part of the effect key' } }],
    [
      { role: {}, user: 'u' },
      'k',
      { issue: { pointer: '/role', detail: expect.stringContaining('must be a string') } },
    ],
    [
      { role: 'é'.repeat(500), user: 'u' },
      'k',
      { issue: { pointer: '', detail: expect.stringContaining('1008 bytes') } },
    ],
    [{ role: 'a' }, 'k', { issue: { pointer: '/user', detail: 'input.user is required in a URL' } }],
    [{ role: 'a', user: [] }, 'k', { issue: { pointer: '/user', detail: 'input.user has no textual form in a URL' } }],
    [
      { role: 'a', user: '' },
      'k',
      { issue: { pointer: '/user', detail: expect.stringContaining('must not be empty') } },
    ],
    [{ role: 'a', user: '..' }, 'k', { issue: { pointer: '', detail: expect.stringContaining('"." or ".."') } }],
    [
      { role: 'a', user: '\u0000'.repeat(3_000) },
      'k',
      { issue: { pointer: '', detail: expect.stringContaining('8000') } },
    ],
    [{ role: '\ud800', user: 'u' }, 'k', { issue: { pointer: '', detail: expect.stringContaining('lone surrogate') } }],
  ])('case %#: an item has its effect key or an issue', async (input, key, expected) => {
    const type = await loadEntry(definition)
    expect(type.effectKey({ key, input, rootOperationId: root })).toEqual(expected)
  })

  it('has the type, the first operation and the item as its default effect key', async () => {
    const type = await loadEntry(minimal)
    expect(type.effectKey({ key: 'k', input: {}, rootOperationId: root })).toEqual({ key: 'grant-role:op_0:k' })
  })

  it('refuses an empty effect key, and dot segments that several values make together', async () => {
    const url = '{env.DIRECTORY_URL}/{item.key}{input.dot}?q={input.dot}'
    const type = await loadEntry({ ...minimal, effect_key: '{input.key}', http: { ...http, request: { url } } })
    const keyOf = (key: string, input: Record<string, string>) => type.effectKey({ key, input, rootOperationId: root })
    expect(keyOf('a', { key: '', dot: '.' })).toEqual({ issue: { pointer: '', detail: 'makes an empty effect key' } })
    expect(keyOf('.', { key: 'x', dot: '.' })).toMatchObject({ issue: { detail: expect.stringContaining('".."') } })
    expect(keyOf('a', { key: 'x', dot: '.' })).toEqual({ key: 'x' })
  })
})
