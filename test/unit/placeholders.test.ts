import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  compileTemplate,
  encodeHeaderValue,
  encodeUrlValue,
  renderJson,
  renderText,
  type TemplateValues,
} from '../../src/operation-types/placeholders.ts'

const scope = {
  type: 'grant-role',
  env: { DIRECTORY_URL: 'http://directory', EMPTY: '' },
  secrets: (name: string) => (name === 'TOKEN' ? 's3cret' : undefined),
}
const values: TemplateValues = {
  input: { role: 'admin', count: 3, ok: false, nothing: null, list: ['a', { b: 'c' }], 'odd~/name': 1, deep: { a: 1 } },
  itemKey: 'user 1',
  effectKey: 'grant:admin:user 1',
  operationId: 'op_1',
}
const json = (text: string) => renderJson(compileTemplate(text, scope), values)

describe('placeholders', () => {
  it.each([
    ['{input.role}', 'admin'],
    ['{input.count}', 3],
    ['{input.ok}', false],
    ['{input.nothing}', null],
    ['{input.list}', ['a', { b: 'c' }]],
    ['{input.list.1.b}', 'c'],
    ['{input.odd~/name}', 1],
    ['{input.deep}', { a: 1 }],
    ['{input.absent}', undefined],
    ['{input.role.length}', undefined],
    ['{input.list.length}', undefined],
    ['{input.constructor}', undefined],
    ['{input.deep.toString}', undefined],
    ['{item.key}', 'user 1'],
    ['{effect_key}', 'grant:admin:user 1'],
    ['{operation.id}', 'op_1'],
    ['{type}', 'grant-role'],
    ['{env.DIRECTORY_URL}', 'http://directory'],
    ['{secret.TOKEN}', 's3cret'],
    ['Bearer {secret.TOKEN}', 'Bearer s3cret'],
    ['n={input.count} {input.deep}', 'n=3 {"a":1}'],
    ['a {input.absent}', undefined],
    ['{{"a": {input.count}}}', '{"a": 3}'],
    ['', ''],
    ['plain', 'plain'],
  ])('%s becomes %j', (text, expected) => {
    expect(json(text)).toEqual(expected)
  })

  it.each([
    ['{item.kye}', 'unknown placeholder {item.kye}'],
    ['{input}', 'unknown placeholder {input}'],
    ['{input.}', 'unknown placeholder'],
    ['{input.__proto__.x}', 'unknown placeholder'],
    ['{}', 'unknown placeholder {}'],
    ['{ item.key }', 'unknown placeholder'],
    ['{env.A B}', 'unknown placeholder'],
    ['{env.MISSING}', 'the environment variable MISSING is not set'],
    ['{env.EMPTY}', 'the environment variable EMPTY is not set'],
    ['{env.constructor}', 'the environment variable constructor is not set'],
    ['{secret.MISSING}', 'OPLEDGER_SECRET_MISSING is not set'],
    ['{item.key', 'a lone "{"'],
    ['item.key}', 'a lone "}"'],
  ])('%s is refused at the start', (text, message) => {
    expect(() => compileTemplate(text, scope)).toThrow(message)
  })

  it('never reads a value as a template', () => {
    const template = compileTemplate('{input.role}', scope)
    const input = { role: '{secret.TOKEN}' }
    expect(renderJson(template, { ...values, input })).toBe('{secret.TOKEN}')
  })

  it('names the member that has no textual form', () => {
    const misfit = (text: string) => renderText(compileTemplate(text, scope), values, String)
    expect(misfit('x{input.absent}')).toMatchObject({ missing: true, misfit: { pointer: '/absent' } })
    expect(misfit('x{input.deep}')).toMatchObject({ missing: false, misfit: { pointer: '/deep' } })
    expect(misfit('x{input.nothing}')).toMatchObject({ missing: false, misfit: { pointer: '/nothing' } })
  })
})

describe('encoding', () => {
  const decodeHeader = (text: string): string =>
    text.replace(/(?:%[0-9A-Fa-f]{2})+/g, (escapes) => decodeURIComponent(escapes))

  it('case 67: makes any value one URL segment that decodes to itself', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (value) => {
        const encoded = encodeUrlValue(value)
        expect(encoded).toMatch(/^[A-Za-z0-9._~%-]*$/)
        expect(decodeURIComponent(encoded)).toBe(value)
      }),
    )
    expect(encodeUrlValue('a\ud800b')).toBe('a%EF%BF%BDb')
    expect(encodeUrlValue('a/b?c#d')).toBe('a%2Fb%3Fc%23d')
  })

  it('makes any value a header that decodes to itself, so that no two values meet', () => {
    const unit = fc.oneof(fc.constantFrom('%', '0', 'A', ' ', '\r', '\n', '\t', 'é', '😀'), fc.string({ maxLength: 3 }))
    fc.assert(
      fc.property(fc.array(unit), (units) => {
        const value = units.join('')
        const encoded = encodeHeaderValue(value)
        expect(encoded).toMatch(/^(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?$/)
        expect(decodeHeader(encoded)).toBe(value)
      }),
    )
  })

  it.each([
    ['grant:admin:user 1', 'grant:admin:user 1'],
    ['100%', '100%'],
    ['a%0Ab', 'a%250Ab'],
    ['a\r\nX-Evil: 1', 'a%0D%0AX-Evil: 1'],
    [' café ', '%20caf%C3%A9%20'],
    ['\ud800', '%EF%BF%BD'],
  ])('header value %j is sent as %s', (value, encoded) => {
    expect(encodeHeaderValue(value)).toBe(encoded)
  })
})
