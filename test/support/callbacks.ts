import { Webhook } from 'standardwebhooks'
import type { CallbackDefinition } from '../../src/domain/http-definition.ts'
import type { Json } from '../../src/domain/operation-type.ts'

/** Three secrets as providers give them out. */
export const SECRETS = ['a', 'b', 'c'].map((letter) => `whsec_${Buffer.alloc(32, letter).toString('base64')}`) as [
  string,
  string,
  string,
]

/** How the tests' events are read: `{"status", "reference", "id"?}`. */
export const CALLBACK: CallbackDefinition & { [member: string]: Json } = {
  secret: '{secret.CALLBACK}',
  effect_key: '/data/reference',
  outcome: [
    { field: '/data/status', equals: ['settled', 1], state: 'applied', ref: '/data/id' },
    { field: '/data/status', equals: ['declined', null], state: 'absent' },
  ],
}

export interface Signed {
  headers: Record<string, string>
  body: string
}

/** An event as its provider would send it; `ageSeconds`: how long ago it was signed. */
export const signEvent = (
  id: string,
  event: Json | string,
  { secret = SECRETS[0], ageSeconds = 0 }: { secret?: string; ageSeconds?: number } = {},
): Signed => {
  const body = typeof event === 'string' ? event : JSON.stringify(event)
  const at = new Date(Date.now() - ageSeconds * 1_000)
  return {
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
      'webhook-signature': new Webhook(secret).sign(id, at, body),
    },
    body,
  }
}
