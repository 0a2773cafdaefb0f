/** Requests for every operation of the OpenAPI document: right ones, nearly right ones and rubbish. */
import fc from 'fast-check'
import { fitting, type Hints, nearly, oddJson, oddText, type Schema } from './schemas.ts'

interface Parameter {
  name: string
  in: 'path' | 'query' | 'header'
  required?: boolean
  schema: Schema
}
interface OperationObject {
  operationId: string
  parameters?: Parameter[]
  requestBody?: { content: Record<string, { schema: Schema }> }
}
export interface OpenApi {
  paths: Record<string, Record<string, OperationObject>>
  components: { schemas: Record<string, Schema> }
}

export type Kind = 'right' | 'nearly' | 'rubbish'
export interface FuzzRequest {
  operationId: string
  kind: Kind
  method: string
  url: string
  headers: Record<string, string>
  payload: string | Buffer | undefined
}

/** Things that there are, by the name of the parameter or member that asks for one. It grows while the test runs. */
export interface Pool {
  /** Null: nothing of this name is known. */
  pick(name: string, path: string, at: number): string | null
  keys: readonly string[]
}

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'PROPFIND', 'TRACE']
const ACCEPTS = [
  '*/*',
  'application/json',
  'text/csv',
  'application/x-ndjson',
  'text/html',
  'image/png',
  ';;;',
  'a/b;q=2',
  '*/*;q=0',
]
const TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'text/plain',
  'json',
  'application/x-ndjson',
  'text/csv',
  'text/csv;charset=latin1',
]
const TAGS = ['"1"', '"2"', '*', 'W/"1"', '"', '""', '"99999999999999999999"', ', ,']
const PREFERENCES = ['wait=0', 'wait', 'wait=-1', 'respond-async', 'wait=0;x=2', ',', 'wait=x']
const visible = fc.string({
  maxLength: 30,
  unit: fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code)),
})

/** A percent-encoded text, now and then not quite. */
const inUrl = (text: string): string => encodeURIComponent(/\p{Surrogate}/u.test(text) ? '%ED%A0%80' : text)
const brokenEscape = fc.constantFrom(
  '%',
  '%zz',
  '%00',
  '%ff',
  '%ed%a0%80',
  '%2f..%2f',
  '..',
  '.',
  '%2e%2e',
  '//',
  ';',
  '*',
)

/** Nothing that is asked for waits: what waits as long as it was asked to would look like a hang. */
const withoutWaits = (schemas: Record<string, Schema>): Record<string, Schema> =>
  Object.fromEntries(
    Object.entries(schemas).map(([name, schema]) => [
      name,
      schema.properties?.wait_seconds === undefined
        ? schema
        : { ...schema, properties: { ...schema.properties, wait_seconds: { const: 0 } } },
    ]),
  )

/** `only`: for one operation, by its `operationId`. */
export const requestsFor = (document: OpenApi, pool: Pool, only?: string): fc.Arbitrary<FuzzRequest> => {
  const schemas = withoutWaits(document.components.schemas)
  const hints: Hints = (member) =>
    pool.pick(member, '', 0) === null ? null : fc.nat().map((at) => pool.pick(member, '', at) ?? '')
  const known = (name: string, path: string, schema: Schema): fc.Arbitrary<string> => {
    const fits = fitting(schema, schemas, hints).map(String)
    if (pool.pick(name, path, 0) === null) return fits
    return fc.oneof(
      { weight: 6, arbitrary: fc.nat().map((at) => pool.pick(name, path, at) ?? 'x') },
      { weight: 1, arbitrary: fits },
    )
  }

  const pathOf = (path: string, parameters: Parameter[], kind: Kind): fc.Arbitrary<string> => {
    const values = parameters.map(({ name, schema }) => {
      const right = known(name, path, schema).map((text) => [name, inUrl(text)] as const)
      const odd = fc.oneof(oddText.map(inUrl), brokenEscape).map((text) => [name, text] as const)
      return kind === 'right'
        ? right
        : fc.oneof({ weight: kind === 'nearly' ? 6 : 1, arbitrary: right }, { weight: 1, arbitrary: odd })
    })
    return fc
      .tuple(...values)
      .map((pairs) => pairs.reduce((text, [name, value]) => text.replace(`{${name}}`, () => value), path))
  }

  const queryOf = (parameters: Parameter[], kind: Kind): fc.Arbitrary<string> => {
    const one = (parameter: Parameter): fc.Arbitrary<string> => {
      const right = known(parameter.name, '', parameter.schema).map((text) => `${parameter.name}=${inUrl(text)}`)
      const odd = oddText.map((text) => `${parameter.name}=${inUrl(text)}`)
      return kind === 'right' ? right : fc.oneof(right, odd)
    }
    const chosen = fc.subarray(parameters, { maxLength: Math.min(parameters.length, kind === 'right' ? 2 : 20) })
    const own = chosen.chain((some) => fc.tuple(...some.map(one)))
    const foreign = fc
      .tuple(visible, fc.oneof(oddText.map(inUrl), brokenEscape))
      .map(([name, value]) => `${inUrl(name)}=${value}`)
    const more = kind === 'rubbish' ? fc.array(foreign, { maxLength: 2 }) : fc.constant([])
    return fc.tuple(own, more).map(([first, others]) => [...first, ...others].join('&'))
  }

  const headersOf = (parameters: Parameter[], kind: Kind): fc.Arbitrary<Record<string, string>> => {
    const values: Record<string, fc.Arbitrary<string>> = {
      'if-match': fc.constantFrom(...TAGS),
      'if-none-match': fc.constantFrom(...TAGS),
      prefer: fc.constantFrom(...PREFERENCES),
      'idempotency-key': fc.oneof(visible, fc.constantFrom('a', '"b"', '"', 'x'.repeat(300), 'a b')),
      'last-event-id': fc.constantFrom('0', '1', '-1', 'x', '99999999999999999999'),
    }
    const declared = Object.fromEntries(
      parameters.map(({ name }) => [name.toLowerCase(), values[name.toLowerCase()] ?? visible] as const),
    )
    const others = {
      accept: fc.constantFrom(...ACCEPTS),
      'x-request-id': fc.oneof(visible, fc.constant('x'.repeat(300))),
      traceparent: fc.oneof(visible, fc.constant(`00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`)),
      'content-encoding': fc.constantFrom('identity', 'gzip', 'br'),
      authorization: fc.oneof(
        visible,
        fc.constantFrom('Bearer', 'Bearer opl_nobody', 'Basic YTpi', `Bearer opl_${'x'.repeat(400)}`),
      ),
      origin: fc.constantFrom('null', 'http://evil.example', 'http://localhost'),
      cookie: visible,
      'x-forwarded-for': fc.constantFrom('127.0.0.1', 'unknown', '::1, 10.0.0.1'),
      range: fc.constantFrom('bytes=0-1', 'bytes=-'),
    }
    const all: Record<string, fc.Arbitrary<string>> = kind === 'rubbish' ? { ...others, ...declared } : declared
    const some = fc.subarray(Object.entries(all))
    return some.chain((chosen) => fc.record(Object.fromEntries(chosen)))
  }

  const bodyOf = (
    body: OperationObject['requestBody'],
    kind: Kind,
  ): fc.Arbitrary<[type: string, body: string | Buffer] | null> => {
    const rubbish = fc.tuple(
      fc.constantFrom(...TYPES),
      fc.oneof(
        oddJson.map((value) => JSON.stringify(value) ?? ''),
        fc.constantFrom(
          '',
          '{',
          'null',
          '[]',
          '"x"',
          '5',
          '\ufeff{}',
          '{"__proto__":1}',
          '{"a":1,"a":2}',
          '['.repeat(5_000),
        ),
        fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)),
      ),
    )
    if (body === undefined) return kind === 'rubbish' ? fc.option(rubbish) : fc.constant(null)
    if (kind === 'rubbish') return rubbish
    return fc.constantFrom(...Object.entries(body.content)).chain(([type, { schema }]) => {
      if (type !== 'application/json') return rows(type, kind).map((text): [string, string] => [type, text])
      const fits = fitting(schema, schemas, hints)
      return (kind === 'right' ? fits : nearly(fits)).map((value): [string, string] => [
        type,
        JSON.stringify(value) ?? '',
      ])
    })
  }

  const item = fc.record({ key: fc.constantFrom(...pool.keys, 'ü', 'new'), input: fc.oneof(fc.constant({}), oddJson) })
  const rows = (type: string, kind: Kind): fc.Arbitrary<string> => {
    const line =
      type === 'text/csv'
        ? fc.tuple(visible, visible).map((cells) => cells.join(','))
        : item.map((one) => JSON.stringify(one))
    const lines = kind === 'right' ? line : fc.oneof({ weight: 4, arbitrary: line }, { weight: 1, arbitrary: oddText })
    const head = type === 'text/csv' ? 'key,role\n' : ''
    return fc.array(lines, { maxLength: 5 }).map((all) => `${head}${all.join('\n')}\n`)
  }

  const operations = Object.entries(document.paths)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
    )
    .filter(({ operation }) => only === undefined || operation.operationId === only)
  const build = (place: (typeof operations)[number], kind: Kind): fc.Arbitrary<FuzzRequest> => {
    const { path, operation } = place
    const { operationId, parameters = [], requestBody } = operation
    const of = (where: Parameter['in']) => parameters.filter((parameter) => parameter.in === where)
    const method =
      kind === 'rubbish' ? fc.constantFrom(place.method, place.method, ...METHODS) : fc.constant(place.method)
    return fc
      .tuple(
        method,
        pathOf(path, of('path'), kind),
        queryOf(of('query'), kind),
        headersOf(of('header'), kind),
        bodyOf(requestBody, kind),
      )
      .map(([verb, where, query, headers, body]) => ({
        operationId,
        kind,
        method: verb,
        url: query === '' ? where : `${where}?${query}`,
        headers: body === null ? headers : { 'content-type': body[0], ...headers },
        payload: body === null || verb === 'GET' || verb === 'HEAD' ? undefined : body[1],
      }))
  }
  const kinds = fc.constantFrom<Kind>('right', 'right', 'nearly', 'nearly', 'rubbish')
  // each is built once: there are some hundred of them
  const built = new Map<string, fc.Arbitrary<FuzzRequest>>()
  return fc.tuple(fc.noBias(fc.nat({ max: operations.length - 1 })), kinds).chain(([index, kind]) => {
    const known = built.get(`${index} ${kind}`)
    if (known) return known
    const arbitrary = build(operations[index] as (typeof operations)[number], kind)
    built.set(`${index} ${kind}`, arbitrary)
    return arbitrary
  })
}
