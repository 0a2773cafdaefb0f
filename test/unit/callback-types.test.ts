import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { compensationKey, REGISTRY_KEY_BYTES_MAX, SEND_MAX } from '../../src/domain/compensation.ts'
import { EFFECT_KEY_BYTES_MAX } from '../../src/domain/effect.ts'
import { ConfigurationError } from '../../src/domain/errors.ts'
import type { CallbackReceiver, Json } from '../../src/domain/operation-type.ts'
import { buildCodeType, defineOperationType } from '../../src/operation-types/code.ts'
import type { CodeCallback } from '../../src/operation-types/handlers.ts'
import { loadOperationTypes } from '../../src/operation-types/registry.ts'
import { CALLBACK, SECRETS, signEvent } from '../support/callbacks.ts'

let directory: string
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'opledger-types-'))
})
afterAll(() => rm(directory, { recursive: true, force: true }))

const VALUES: Record<string, string> = {
  CALLBACK: SECRETS[0],
  NEXT: SECRETS[1],
  BOTH: `${SECRETS[0]} ${SECRETS[1]}`,
  PLAIN: 'hunter2hunter2',
}
const LONGEST_KEY = compensationKey({ effectKey: 'x'.repeat(EFFECT_KEY_BYTES_MAX), step: '', send: SEND_MAX })
const http = {
  request: { url: 'http://provider.test/pay' },
  outcome: [{ status: [200], state: 'applied' }],
}
const load = async (callback: unknown) => {
  const file = path.join(directory, 'types.json')
  await writeFile(
    file,
    JSON.stringify({ types: [{ name: 'pay', version: 1, effect: 'external', http: { ...http, callback } }] }),
  )
  const registry = await loadOperationTypes({ paths: [file], env: { X: 'x' }, secrets: (name) => VALUES[name] })
  return registry.get('pay')
}
const receiver = async (change: object = {}): Promise<CallbackReceiver> => {
  const found = (await load({ ...CALLBACK, ...change }))?.callback
  if (!found) throw new Error('takes no callbacks')
  return found
}
const accepts = ({ verify }: CallbackReceiver, secret: string, ageSeconds = 0): boolean => {
  const { headers, body } = signEvent('e', {}, { secret, ageSeconds })
  return verify(headers, Buffer.from(body))
}

describe('http.callback', () => {
  it('is left out where a type takes none', async () => expect((await load(undefined))?.callback).toBeNull())

  it.each<[string, object, string]>([
    ['secret', { secret: undefined }, 'http.callback.secret: '],
    [
      'secret',
      { secret: '{secret.MISSING}' },
      'http.callback.secret: {secret.MISSING}: the environment variable OPLEDGER_SECRET_MISSING is not set',
    ],
    ['secret', { secret: SECRETS[0] }, 'http.callback.secret: must be {secret.X}'],
    ['secret', { secret: '{env.X}' }, 'http.callback.secret: must be {secret.X}'],
    ['secret', { secret: '{secret.CALLBACK} {input.x}' }, 'http.callback.secret: is the same for every item'],
    ['secret', { secret: '{secret.PLAIN}' }, 'http.callback.secret: must be "whsec_"'],
    ['secret', { secret: '{secret.CALLBACK}{secret.NEXT}' }, 'http.callback.secret: must be "whsec_"'],
    ['effect_key', { effect_key: 'reference' }, 'http.callback.effect_key: must be a JSON pointer'],
    ['outcome', { outcome: [] }, 'http.callback.outcome: '],
    [
      'outcome',
      { outcome: [{ field: 's', equals: ['x'], state: 'applied' }] },
      'http.callback.outcome.0.field: must be a JSON pointer',
    ],
    ['outcome', { outcome: [{ field: '/s', equals: [], state: 'applied' }] }, 'http.callback.outcome.0.equals: '],
    [
      'outcome',
      { outcome: [{ field: '/s', equals: [{}], state: 'applied' }] },
      'http.callback.outcome.0.equals.0: must be a text, number, boolean or null',
    ],
    ['outcome', { outcome: [{ field: '/s', equals: ['x'], state: 'failed' }] }, 'http.callback.outcome.0.state: '],
    [
      'outcome',
      { outcome: [{ field: '/s', equals: ['x'], state: 'absent', class: 'x' }] },
      'http.callback.outcome.0.class: unknown member',
    ],
    ['tolerance', { tolerance_seconds: 5 }, 'http.callback.tolerance_seconds: '],
    ['misspelt', { secrets: 'x' }, 'http.callback.secrets: unknown member'],
  ])('stops the start with file, type and field, and no secret: %s %o', async (_, change, message) => {
    const refused = await load({ ...CALLBACK, ...change }).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(ConfigurationError)
    const text = String(refused instanceof Error && refused.message)
    expect(text).toContain(`types.json: type "pay": ${message}`)
    expect(text).not.toContain('\n')
    for (const value of Object.values(VALUES)) expect(text).not.toContain(value)
  })

  it.each([
    ['one value', '{secret.BOTH}'],
    ['two placeholders', '{secret.CALLBACK} {secret.NEXT}'],
  ])('takes several secrets for a rotation: %s', async (_, secret) => {
    const both = await receiver({ secret })
    expect(SECRETS.map((each) => accepts(both, each))).toEqual([true, true, false])
  })

  it('stands in an example that loads', async () => {
    const registry = await loadOperationTypes({
      paths: [fileURLToPath(new URL('../../examples/types/grant-by-callback.yaml', import.meta.url))],
      env: { DIRECTORY_URL: 'http://directory.test' },
      secrets: (name) => (name === 'DIRECTORY_WEBHOOK' ? SECRETS[0] : undefined),
    })
    const example = registry.get('grant-by-callback')?.callback
    expect(example?.read({ type: 'grant.created', data: { reference: 'grant:a:b', id: 'g' } })).toEqual({
      effectKey: 'grant:a:b',
      state: 'applied',
      effectRef: 'g',
    })
  })

  it('has a tolerance of 300 seconds unless it says otherwise', async () => {
    const usual = await receiver()
    const strict = await receiver({ tolerance_seconds: 20 })
    const lax = await receiver({ tolerance_seconds: 3_600 })
    const ages = [10, 290, 310]
    expect(ages.map((age) => accepts(usual, SECRETS[0], age))).toEqual([true, true, false])
    expect(ages.map((age) => accepts(strict, SECRETS[0], age))).toEqual([true, false, false])
    expect(ages.map((age) => accepts(lax, SECRETS[0], age))).toEqual([true, true, true])
  })

  const data = (status: Json, more: object = {}): Json => ({ data: { status, reference: 'k', ...more } }) as Json
  it.each<[string, Json, object | null]>([
    ['the first rule that matches', data('settled'), { effectKey: 'k', state: 'applied' }],
    ['a number', data(1), { effectKey: 'k', state: 'applied' }],
    ['null', data(null), { effectKey: 'k', state: 'absent' }],
    ['no text for a number', data('1'), null],
    ['no other value', data('pending'), null],
    ['no missing member', { data: { reference: 'k' } }, null],
    ['a reference', data('settled', { id: 'tx-1' }), { effectKey: 'k', state: 'applied', effectRef: 'tx-1' }],
    ['a reference that is a number', data('settled', { id: 7 }), { effectKey: 'k', state: 'applied', effectRef: '7' }],
    [
      'a reference made fit',
      data('settled', { id: 'a\u0000' }),
      { effectKey: 'k', state: 'applied', effectRef: 'a\ufffd' },
    ],
    ['no reference that is too long', data('settled', { id: 'x'.repeat(501) }), { effectKey: 'k', state: 'applied' }],
    ['no reference that was rounded', data('settled', { id: 2 ** 60 }), { effectKey: 'k', state: 'applied' }],
    ['no reference of the rule that did not match', data('declined', { id: 'x' }), { effectKey: 'k', state: 'absent' }],
    ['a key that is a number', { data: { status: 1, reference: 42 } }, { effectKey: '42', state: 'applied' }],
    ['no key that is missing', { data: { status: 1 } }, null],
    ['no key that is an object', { data: { status: 1, reference: {} } }, null],
    ['no key that is empty', { data: { status: 1, reference: '' } }, null],
    ['no key that no effect can have', { data: { status: 1, reference: 'a\u0000' } }, null],
    ['no key that is too long', { data: { status: 1, reference: 'x'.repeat(REGISTRY_KEY_BYTES_MAX + 1) } }, null],
    [
      'the longest key of a compensation',
      { data: { status: 1, reference: LONGEST_KEY } },
      { effectKey: LONGEST_KEY, state: 'applied' },
    ],
    [
      'no inherited member',
      { data: { status: 1, reference: 'k' }, constructor: 1 },
      { effectKey: 'k', state: 'applied' },
    ],
    ['no list', [], null],
    ['no text', 'settled', null],
    ['no null', null, null],
  ])('reads %s', async (_, event, statement) => expect((await receiver()).read(event)).toEqual(statement))

  it('sees own members only', async () => {
    const prototype = await receiver({
      outcome: [{ field: '/constructor/name', equals: ['Object'], state: 'applied' }],
    })
    expect(prototype.read({ data: { reference: 'k' } })).toBeNull()
  })
})

describe('callback of a code type', () => {
  const build = (callback: unknown) =>
    buildCodeType(
      defineOperationType({
        name: 'pay',
        version: 1,
        effect: 'external',
        input: z.object({}),
        send: async () => ({ state: 'applied' }),
        callback: callback as CodeCallback,
      }),
      { codeVersion: 'v1' },
    )
  const reading = (answer: unknown) => build({ secrets: SECRETS[0], read: () => answer }).callback?.read({})

  it('verifies with its secrets', () => {
    const callback = build({ secrets: [SECRETS[0], SECRETS[1]], read: () => null }).callback
    if (!callback) throw new Error('takes no callbacks')
    expect(SECRETS.map((secret) => accepts(callback, secret))).toEqual([true, true, false])
    expect(accepts(callback, SECRETS[0], 310)).toBe(false)
  })

  it.each<[unknown, unknown]>([
    [null, null],
    [
      { effectKey: 'k', state: 'applied' },
      { effectKey: 'k', state: 'applied' },
    ],
    [
      { effectKey: 'k', state: 'absent', effectRef: 'r' },
      { effectKey: 'k', state: 'absent', effectRef: 'r' },
    ],
    [{ effectKey: '', state: 'absent' }, null],
  ])('reads %o', (answer, statement) => expect(reading(answer)).toEqual(statement))

  it('that says something else is a fault of the type, not an event without a meaning', () => {
    for (const answer of [undefined, 'applied', { effectKey: 'k', state: 'failed' }]) {
      expect(() => reading(answer)).toThrow()
    }
  })

  it.each<[unknown, RegExp]>([
    [{ secrets: 'hunter2hunter2', read: () => null }, /^callback\.secrets: must be "whsec_"[^2]*$/],
    [{ secrets: [], read: () => null }, /^callback\.secrets: names no secret$/],
    [{ secrets: 7, read: () => null }, /^callback\.secrets: must be a secret, or a list of them/],
    [{ secrets: SECRETS[0] }, /^callback\.read: must be a function/],
    [{ secrets: SECRETS[0], read: () => null, tolerance_seconds: 1 }, /^callback\.tolerance_seconds: /],
    [{ secrets: SECRETS[0], read: () => null, verify: 1 }, /^callback\.verify: unknown member/],
  ])('is checked: %o', (callback, message) => expect(() => build(callback)).toThrow(message))

  it('has no meaning for a transactional type', () => {
    const definition = { name: 'x', version: 1, effect: 'transactional', input: z.object({}), runBatch: async () => {} }
    expect(() =>
      buildCodeType(
        defineOperationType({ ...definition, callback: { secrets: SECRETS[0], read: () => null } } as never),
        {
          codeVersion: 'v1',
        },
      ),
    ).toThrow('callback: has no meaning for effect transactional')
  })
})
