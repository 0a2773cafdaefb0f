import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  parseCallbackUrl,
  parseRetryAfter,
  parseWebhookSecrets,
  WEBHOOK_SECRETS_MAX,
  WEBHOOK_TRIES_MAX,
  type WebhookAnswer,
  type WebhookFacts,
  webhookBody,
  webhookVerdict,
} from '../../../src/domain/webhook.ts'

describe('a callback URL', () => {
  it.each([
    ['https://example.com/hooks?a=b', 'https://example.com/hooks?a=b'],
    ['HTTPS://Example.COM:443', 'https://example.com/'],
    ['http://example.com:8080/x', 'http://example.com:8080/x'],
    ['https://bücher.example/ä', 'https://xn--bcher-kva.example/%C3%A4'],
    ['http://8.8.8.8/', 'http://8.8.8.8/'],
    [`https://example.com/${'a'.repeat(2_028)}`, `https://example.com/${'a'.repeat(2_028)}`],
  ])('%s is kept as %s', (text, url) => {
    expect(parseCallbackUrl(text, 'refuse')).toEqual({ url })
  })
  it.each([
    ['', /not an absolute URL/],
    ['/hooks', /not an absolute URL/],
    ['example.com/hooks', /not an absolute URL/],
    ['https://', /not an absolute URL/],
    ['ftp://example.com/', /neither https nor http/],
    ['file:///etc/passwd', /neither https nor http/],
    ['javascript:alert(1)', /neither https nor http/],
    ['https://me@example.com/', /credentials/],
    ['https://me:secret@example.com/', /credentials/],
    ['https://:secret@example.com/', /credentials/],
    ['https://example.com/#part', /fragment/],
    ['https://example.com/#', /fragment/],
    [`https://example.com/${'a'.repeat(2_029)}`, /longer than 2048 bytes/],
    [`https://example.com/${'ä'.repeat(400)}`, /longer than 2048 bytes/],
    ['http://127.0.0.1:9000/', /private network/],
    ['http://2130706433/', /private network/],
    ['http://[::ffff:10.0.0.1]/', /private network/],
    ['http://localhost/', /private network/],
  ])('%s is refused', (text, fault) => {
    expect(parseCallbackUrl(text, 'refuse')).toEqual({ fault: expect.stringMatching(fault) })
  })
  it('may lead into a private network where that is allowed', () => {
    expect(parseCallbackUrl('http://localhost:9000', 'allow')).toEqual({ url: 'http://localhost:9000/' })
    expect(parseCallbackUrl('http://10.0.0.1', 'allow')).toEqual({ url: 'http://10.0.0.1/' })
  })
})

describe('secrets', () => {
  const secret = (bytes: number): string => `whsec_${Buffer.alloc(bytes, 7).toString('base64')}`
  it.each([24, 25, 32, 64])('of %d bytes', (bytes) => {
    expect(parseWebhookSecrets(secret(bytes))).toEqual([secret(bytes)])
  })
  it('are told apart by white space, as many as may be', () => {
    expect(parseWebhookSecrets(` ${secret(24)} \n\t${secret(32)}\n`)).toEqual([secret(24), secret(32)])
    const most = Array<string>(WEBHOOK_SECRETS_MAX).fill(secret(32))
    expect(parseWebhookSecrets(most.join(' '))).toEqual(most)
  })
  it.each([
    ['too short', secret(23)],
    ['too long', secret(65)],
    ['without its prefix', secret(32).slice(6)],
    ['with something before it', `x${secret(32)}`],
    ['not base64', `whsec_${'!'.repeat(40)}`],
    ['base64 with a stray sign', `${secret(32)}!`],
    ['base64url', `whsec_${Buffer.alloc(24, 255).toString('base64url')}`],
    ['without padding', secret(25).replace(/=+$/, '')],
    ['empty', ''],
    ['only the prefix', 'whsec_'],
    ['one good, one bad', `${secret(32)} nonsense`],
    [
      'too many',
      Array(WEBHOOK_SECRETS_MAX + 1)
        .fill(secret(32))
        .join(' '),
    ],
  ])('%s is none', (_, text) => expect(parseWebhookSecrets(text)).toBeNull())
})

describe('the body', () => {
  const facts: WebhookFacts = {
    timestamp: '2026-11-29T14:20:18.123456+00:00',
    version: 17,
    counts: { total: 5, applied: 2, skipped: 1, failed: 1, uncertain: 0 },
    completed_at: '2026-11-29T14:20:18.1+00:00',
  }
  const operation = { id: '0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d5e', type: 'grant-role', status: 'succeeded' } as const

  it('is thin, and the same for the same facts', () => {
    const body = webhookBody('operation.settled', operation, facts)
    expect(webhookBody('operation.settled', { ...operation }, structuredClone(facts))).toBe(body)
    expect(JSON.parse(body)).toEqual({
      type: 'operation.settled',
      timestamp: '2026-11-29T14:20:18.123456Z',
      data: {
        operation: {
          id: 'op_0198c0de7f3a7c0d9a5e4b1f2a3c4d5e',
          type: 'grant-role',
          status: 'succeeded',
          version: 17,
          counts: { total: 5, applied: 2, skipped: 1, failed: 1, uncertain: 0, unprocessed: 1 },
          completed_at: '2026-11-29T14:20:18.1Z',
          links: { self: '/operations/op_0198c0de7f3a7c0d9a5e4b1f2a3c4d5e' },
        },
      },
    })
  })
  it('says null where the operation is not complete', () => {
    const open = { ...operation, status: 'reconciliation_required' } as const
    const body = webhookBody('operation.reconciliation_required', open, { ...facts, completed_at: null })
    expect(JSON.parse(body).data.operation).toMatchObject({ status: 'reconciliation_required', completed_at: null })
  })
})

const answered = (status: number, retryAfterMs: number | null = null): WebhookAnswer => ({
  kind: 'answered',
  status,
  retryAfterMs,
})
const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

describe('what comes after a try', () => {
  it.each([200, 201, 202, 204, 299])('%d is delivered', (status) => {
    expect(webhookVerdict(answered(status), 1, 0)).toEqual({ kind: 'delivered' })
    expect(webhookVerdict(answered(status), 1_000, 0)).toEqual({ kind: 'delivered' })
  })
  it('410 disables', () => expect(webhookVerdict(answered(410), 1, 0)).toEqual({ kind: 'disabled' }))
  it.each([199, 300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 599])(
    '%d is tried again',
    (status) => expect(webhookVerdict(answered(status), 1, 0.5)).toEqual({ kind: 'retry', delayMs: 5 * SECOND }),
  )
  it('no answer is tried again', () => {
    expect(webhookVerdict({ kind: 'unanswered', code: 'TIMEOUT' }, 2, 0.5)).toEqual({
      kind: 'retry',
      delayMs: 5 * MINUTE,
    })
  })
  it('the pauses grow to a day, over three days in all; then it is given up', () => {
    const pauses = Array.from({ length: WEBHOOK_TRIES_MAX }, (_, index) =>
      webhookVerdict(answered(500), index + 1, 0.5),
    )
    expect(pauses).toEqual([
      ...[5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR].map(
        (delayMs) => ({ kind: 'retry', delayMs }),
      ),
      { kind: 'failed' },
    ])
  })
  it('is bounded for every try, with jitter of a fifth', () => {
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1_000 }), random, (tries, number) => {
        const plain = webhookVerdict(answered(500), tries, 0.5)
        const verdict = webhookVerdict(answered(500), tries, number)
        if (tries >= WEBHOOK_TRIES_MAX) return verdict.kind === 'failed'
        if (verdict.kind !== 'retry' || plain.kind !== 'retry') return false
        const share = verdict.delayMs / plain.delayMs
        return Number.isSafeInteger(verdict.delayMs) && share >= 0.8 && share <= 1.2
      }),
    )
  })
  it.each([429, 503])('a pause that %d asks for is kept, up to a day', (status) => {
    const delay = (retryAfterMs: number | null) => webhookVerdict(answered(status, retryAfterMs), 1, 0.5)
    expect(delay(HOUR)).toEqual({ kind: 'retry', delayMs: HOUR })
    expect(delay(90 * 24 * HOUR)).toEqual({ kind: 'retry', delayMs: 24 * HOUR })
    expect(delay(-5)).toEqual({ kind: 'retry', delayMs: 5 * SECOND })
    expect(delay(null)).toEqual({ kind: 'retry', delayMs: 5 * SECOND })
    expect(webhookVerdict(answered(status, HOUR), WEBHOOK_TRIES_MAX, 0.5)).toEqual({ kind: 'failed' })
  })
  it('nobody else may ask for one', () => {
    expect(webhookVerdict(answered(500, HOUR), 1, 0.5)).toEqual({ kind: 'retry', delayMs: 5 * SECOND })
  })
})

describe('Retry-After', () => {
  const now = Date.parse('2026-11-29T14:00:00Z')
  it.each([
    ['120', 120_000],
    ['0', 0],
    ['Sun, 29 Nov 2026 14:02:00 GMT', 120_000],
    ['Sun, 29 Nov 2026 13:00:00 GMT', 0],
    ['', null],
    ['-1', null],
    ['1e9', null],
    ['29 Nov 2026 14:02:00 GMT', null],
    ['Su, 29 Nov 2026 14:02:00 GMT', null],
    ['soon', null],
    ['Soon', null],
    ['9'.repeat(20), null],
  ])('%j is %s ms', (header, expected) => expect(parseRetryAfter(header, now)).toBe(expected))
})
