import { Webhook } from 'standardwebhooks'
import { describe, expect, it } from 'vitest'
import { DefinitionError } from '../../src/domain/operation-type-definition.ts'
import { openSecrets, openVerifier } from '../../src/operation-types/callback-signature.ts'
import { SECRETS } from '../support/callbacks.ts'

const [OURS, OTHER, STRANGER] = SECRETS
const NOW = 1_800_000_000
const TOLERANCE = 300
const BODY = '{"a": 1}'
const signed = (secret: string, id = 'e1', at = NOW, body = BODY): string =>
  new Webhook(secret).sign(id, new Date(at * 1_000), body)

type Headers = Record<string, string | string[] | undefined>
const headers = (change: Headers = {}): Headers => ({
  'webhook-id': 'e1',
  'webhook-timestamp': String(NOW),
  'webhook-signature': signed(OURS),
  ...change,
})
const verify = (given: Headers, body: string | Buffer = BODY, secrets: string[] = [OURS]): boolean =>
  openVerifier(openSecrets(secrets, 'f'), TOLERANCE, () => NOW * 1_000 + 999)(given, Buffer.from(body))

describe('a signature', () => {
  it.each<[string, Headers]>([
    ['of ours', {}],
    ['beside one of a secret that we do not know', { 'webhook-signature': `${signed(STRANGER)} ${signed(OURS)}` }],
    ['beside one of another scheme', { 'webhook-signature': `v1a,${'A'.repeat(88)} ${signed(OURS)}` }],
    [
      'as old as is allowed',
      { 'webhook-timestamp': `${NOW - 300}`, 'webhook-signature': signed(OURS, 'e1', NOW - 300) },
    ],
    [
      'as far ahead as is allowed',
      { 'webhook-timestamp': `${NOW + 300}`, 'webhook-signature': signed(OURS, 'e1', NOW + 300) },
    ],
  ])('%s is right', (_, change) => expect(verify(headers(change))).toBe(true))

  it('of any secret of a rotation is right', () => {
    for (const secret of [OURS, OTHER]) {
      expect(verify(headers({ 'webhook-signature': signed(secret) }), BODY, [OURS, OTHER])).toBe(true)
    }
    expect(verify(headers({ 'webhook-signature': signed(STRANGER) }), BODY, [OURS, OTHER])).toBe(false)
  })

  it('is over the exact bytes', () => {
    expect(verify(headers(), '{"a":1}')).toBe(false)
    expect(verify(headers(), `${BODY}\n`)).toBe(false)
    const replaced = headers({ 'webhook-signature': signed(OURS, 'e1', NOW, '"\ufffd"') })
    expect(verify(replaced, '"\ufffd"')).toBe(true)
    // the library would read these bytes as that very text
    expect(verify(replaced, Buffer.from([0x22, 0xff, 0x22]))).toBe(false)
  })

  it('is read where the bytes stand in a larger buffer', () => {
    const pool = Buffer.from(`xx${BODY}yy`)
    const verifier = openVerifier(openSecrets([OURS], 'f'), TOLERANCE, () => NOW * 1_000)
    expect(verifier(headers(), pool.subarray(2, 2 + BODY.length))).toBe(true)
  })

  const stale = (at: string, signedAt = Number.parseInt(at, 10)): Headers => ({
    'webhook-timestamp': at,
    'webhook-signature': Number.isNaN(signedAt) ? signed(OURS) : signed(OURS, 'e1', signedAt),
  })
  it.each<[string, Headers]>([
    ['a timestamp "abc"', stale('abc')],
    ['an empty timestamp', stale('')],
    ['a timestamp "NaN"', stale('NaN')],
    ['a timestamp with more behind it', stale(`${NOW}abc`)],
    ['a timestamp with a sign', stale(`+${NOW}`)],
    ['a fraction', stale(`${NOW}.0`)],
    ['a timestamp of an hour ahead', stale(`${NOW + 3_600}`)],
    ['a timestamp of an hour ago', stale(`${NOW - 3_600}`)],
    ['a timestamp just too old', stale(`${NOW - 301}`)],
    ['a timestamp just too far ahead', stale(`${NOW + 301}`)],
    ['a timestamp beyond any date', stale('9'.repeat(12), NOW)],
    ['a timestamp beyond any number', stale('9'.repeat(400), NOW)],
    ['another time than was signed', { 'webhook-timestamp': `${NOW - 1}` }],
    ['another id than was signed', { 'webhook-id': 'e2' }],
    ['two signatures, both wrong', { 'webhook-signature': `${signed(STRANGER)} ${signed(OTHER)}` }],
    ['no base64', { 'webhook-signature': 'v1,%%%not-base64%%%' }],
    ['hex', { 'webhook-signature': `v1,${'ab'.repeat(32)}` }],
    ['a signature without its version', { 'webhook-signature': signed(OURS).slice(3) }],
    ['a version without a signature', { 'webhook-signature': 'v1' }],
    ['a signature of another version', { 'webhook-signature': signed(OURS).replace('v1,', 'v2,') }],
    ['half a signature', { 'webhook-signature': signed(OURS).slice(0, 20) }],
    ['an empty signature', { 'webhook-signature': '' }],
    ['text beyond ASCII', { 'webhook-signature': 'v1,\u00e9\ud800\u0000' }],
    ['a right one behind more than anybody sends', { 'webhook-signature': `${'v1,x '.repeat(16)}${signed(OURS)}` }],
    ['no id', { 'webhook-id': undefined }],
    ['no timestamp', { 'webhook-timestamp': undefined }],
    ['no signature', { 'webhook-signature': undefined }],
    ['an empty id', { 'webhook-id': '', 'webhook-signature': signed(OURS, '') }],
    ['an id with spaces', { 'webhook-id': 'e 1', 'webhook-signature': signed(OURS, 'e 1') }],
    ['an id of 256 characters', { 'webhook-id': 'e'.repeat(256), 'webhook-signature': signed(OURS, 'e'.repeat(256)) }],
    ['a header twice', { 'webhook-id': ['e1', 'e1'] }],
  ])('case 109: %s is rejected, without a throw', (_, change) => expect(verify(headers(change))).toBe(false))

  it('case 109: is compared to its end, whatever was found before', () => {
    const secrets = openSecrets([OURS, OTHER, STRANGER], 'f')
    const asked: string[] = []
    for (const [index, secret] of secrets.entries()) {
      const sign = secret.sign.bind(secret)
      secret.sign = (...parameters) => {
        asked.push(String(index))
        return sign(...parameters)
      }
    }
    expect(openVerifier(secrets, TOLERANCE, () => NOW * 1_000)(headers(), Buffer.from(BODY))).toBe(true)
    expect(asked).toEqual(['0', '1', '2'])
  })
})

describe('secrets', () => {
  const key = (bytes: number): string => Buffer.alloc(bytes, 'k').toString('base64')
  it.each<[string, string[], RegExp]>([
    ['none', [], /names no secret/],
    ['without its prefix', [key(32)], /"whsec_" and a base64 key/],
    ['of another alphabet', [`whsec_${'_-'.repeat(16)}`], /"whsec_" and a base64 key/],
    ['that is cut', [`whsec_${key(32).slice(0, -3)}`], /"whsec_" and a base64 key/],
    ['with nothing behind the prefix', ['whsec_'], /"whsec_" and a base64 key/],
    ['too short', [`whsec_${key(23)}`], /24 to 64 bytes, not 23$/],
    ['too long', [`whsec_${key(65)}`], /24 to 64 bytes, not 65$/],
    ['one bad of two', [OURS, 'hunter2hunter2'], /"whsec_".*\(secret 2 of 2\)$/],
    ['too many', Array.from({ length: 11 }, () => OURS), /more than 10 secrets/],
  ])('%s: refused, and not shown', (_, secrets, message) => {
    const open = () => openSecrets(secrets, 'http.callback.secret')
    expect(open).toThrow(DefinitionError)
    expect(open).toThrow(/^http\.callback\.secret: /)
    expect(open).toThrow(message)
    for (const secret of secrets) {
      if (secret === '' || secret === 'whsec_') continue
      expect(open).not.toThrow(new RegExp(secret.replace(/[+/]/g, '.')))
    }
  })

  it.each([24, 32, 64])('of %i bytes are taken, also without padding', (bytes) => {
    expect(openSecrets([`whsec_${key(bytes)}`, `whsec_${key(bytes).replace(/=+$/, '')}`], 'f')).toHaveLength(2)
  })
})
