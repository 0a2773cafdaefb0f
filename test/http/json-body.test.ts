import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AppError } from '../../src/domain/errors.ts'
import { formatId } from '../../src/domain/ids.ts'
import { parseJsonBody } from '../../src/http/json-body.ts'
import { type Edge, openEdge } from './fake-services.ts'

const parse = (text: string) => parseJsonBody(Buffer.from(text))

const refusal = (body: string | Buffer): { code: string; pointer: string | undefined } => {
  try {
    parseJsonBody(Buffer.from(body))
  } catch (error) {
    if (error instanceof AppError) return { code: error.code, pointer: error.errors?.[0]?.pointer }
    throw error
  }
  throw new Error('the body was accepted')
}

describe('parseJsonBody', () => {
  it.each(['"10.5"', '"true"', '"null"', '"{}"', '"\\"q\\""', '5', 'null', 'true', '[]', '{}', '[1,"1"]'])(
    'keeps the type and value of %s (case 69)',
    (text) => expect(JSON.stringify(parse(text))).toBe(text),
  )

  it.each(['', ' ', '\n', '\uFEFF'])('takes %j for no body', (text) => expect(parse(text)).toBeUndefined())

  it('skips a byte order mark', () => expect(parse('\uFEFF{"a":1}')).toEqual({ a: 1 }))

  it.each([
    ['a NUL', '{"a":["x\\u0000"]}', '/a/0'],
    ['a high half', '{"a":{"b":"\\ud800"}}', '/a/b'],
    ['a low half', '["\\udc00x"]', '/0'],
    ['halves in the wrong order', '["\\udc00\\ud800"]', '/0'],
    ['a NUL in a key', '{"a":{"b\\u0000":1}}', '/a/b\uFFFD'],
    ['a half in a key', '{"\\ud800":1}', '/\uFFFD'],
    ['a NUL alone', '"\\u0000"', ''],
  ])('refuses %s (case 65, case 67)', (_name, text, pointer) =>
    expect(refusal(text)).toEqual({ code: 'invalid-text', pointer }),
  )

  it('keeps the text that only looks like an escape (case 67)', () => {
    expect(parse('"\\\\u0000 \\\\ud800"')).toBe('\\u0000 \\ud800')
    expect(parse('"\\ud83d\\ude00"')).toBe('😀')
  })

  it.each([
    ['{"__proto__":{"a":1}}', '/__proto__'],
    ['{"a":[{"constructor":1}]}', '/a/0/constructor'],
    ['{"prototype":null}', '/prototype'],
    ['{"\\u005f_proto__":1}', '/__proto__'],
  ])('refuses the key in %s', (text, pointer) => expect(refusal(text)).toEqual({ code: 'invalid-request', pointer }))

  it.each([
    ['9007199254740992', ''],
    ['-9007199254740993', ''],
    ['[1e400]', '/0'],
    ['{"a":-1e999}', '/a'],
    ['{"a":{"b":123456789012345678901234567890}}', '/a/b'],
    ['1e20', ''],
  ])('refuses the number in %s', (text, pointer) => expect(refusal(text)).toEqual({ code: 'invalid-request', pointer }))

  it.each(['9007199254740991', '-9007199254740991', '0.1', '1e15', '1e-400'])('takes the number %s', (text) =>
    expect(parse(text)).toBe(Number(text)),
  )

  it.each(['{', '{"a":1,}', "{'a':1}", 'NaN', 'Infinity', '01', '"\t"', '[1] x', '"\\x"', '{"a" 1}', '//', 'nul'])(
    'refuses %j as no JSON',
    (text) => expect(refusal(text).code).toBe('malformed-json'),
  )

  it('refuses what is not UTF-8', () => {
    expect(refusal(Buffer.from([0x22, 0xff, 0x22])).code).toBe('malformed-json')
    // a surrogate written as if it were a code point
    expect(refusal(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])).code).toBe('malformed-json')
  })

  it('counts depth by containers, and brackets in strings not at all', () => {
    expect(parse(`${'['.repeat(32)}${']'.repeat(32)}`)).toBeDefined()
    expect(refusal(`${'['.repeat(33)}${']'.repeat(33)}`).code).toBe('invalid-request')
    expect(parse(JSON.stringify(`${'['.repeat(100)}\\"${'{'.repeat(100)}`))).toBeDefined()
    expect(parse(`[${Array.from({ length: 100 }, () => '[]').join(',')}]`)).toHaveLength(100)
  })
})

describe('bodies on the wire', () => {
  let edge: Edge
  beforeAll(async () => {
    edge = await openEdge()
  })
  afterAll(() => edge.app.close())

  it.each([5_000, 50_000, 500_000])(
    'answers 400 to a depth of %i, open or closed, and lives (case 77)',
    async (depth) => {
      for (const payload of ['['.repeat(depth), `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`]) {
        const answer = await edge.app.inject({
          method: 'POST',
          url: '/operations',
          headers: { 'content-type': 'application/json' },
          payload,
        })
        expect([answer.statusCode, answer.json().code]).toEqual([400, 'invalid-request'])
      }
      expect((await edge.app.inject('/livez')).statusCode).toBe(200)
    },
  )

  it.each(['cancel', 'pause', 'resume'])(
    'takes no body, an empty one, {} and null alike: %s (case 83)',
    async (verb) => {
      const outcomes: number[] = []
      const bodies: [Record<string, string>, string | undefined][] = [
        [{}, undefined],
        [{ 'content-type': 'application/json' }, undefined],
        [{ 'content-type': 'application/json', 'content-length': '0' }, ''],
        [{ 'content-type': 'application/json; charset=utf-8' }, ' '],
        [{ 'content-type': 'application/json' }, '{}'],
        [{ 'content-type': 'application/json' }, 'null'],
      ]
      for (const [headers, payload] of bodies) {
        const url = `/operations/${formatId('op', edge.fake.add().id)}/${verb}`
        const answer = await edge.app.inject({
          method: 'POST',
          url,
          headers,
          ...(payload === undefined ? {} : { payload }),
        })
        outcomes.push(answer.statusCode)
      }
      expect(new Set(outcomes).size).toBe(1)
      expect(outcomes[0]).toBeLessThan(300)
    },
  )

  // what is hashed is the body as sent, with its key order left to the hash
  it('hands the body over as it was sent (case 35)', async () => {
    const body = { type: 't', labels: { b: '2', a: '1' }, items: [{ key: 'k', input: { n: '10.5', m: [null, 1.5] } }] }
    await edge.app.inject({ method: 'POST', url: '/operations', payload: body })
    const submission = edge.fake.submissions.at(-1)
    expect(JSON.stringify(submission?.body)).toBe(JSON.stringify(body))
    expect(submission?.items).toEqual(body.items)
  })
})

describe('serialisation', () => {
  it('turns no figure into a 500 (case 73, case 75, case 79)', async () => {
    const edge = await openEdge()
    const operation = edge.fake.add('pending')
    operation.counts = { total: 0, applied: 0, skipped: 0, failed: 0, uncertain: 0, unprocessed: 0, inFlight: 0 }
    operation.startedAt = operation.now
    operation.priority = Number.POSITIVE_INFINITY
    operation.version = 12n as unknown as number
    operation.error = { code: 'x', detail: 'y', unknown: 1n } as unknown as typeof operation.error
    const answer = await edge.app.inject(`/operations/${formatId('op', operation.id)}`)
    expect(answer.statusCode).toBe(200)
    expect(answer.json()).toMatchObject({
      version: 12,
      priority: null,
      progress: { ratio: null, eta: null },
      error: { unknown: 1 },
    })
    await edge.app.close()
  })
})
