/**
 * Signatures of callbacks, as Standard Webhooks lays them down: HMAC-SHA256 over `id.timestamp.body`, in base64, of which
 * a message may carry several. The scheme is the library's. What goes in is checked here: the library reads `12abc` as a
 * timestamp, knows one tolerance only, and throws where a stranger's message is nothing unusual.
 */
import { isUtf8 } from 'node:buffer'
import { createHash, timingSafeEqual } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import type { CallbackReceiver } from '../domain/operation-type.ts'
import { DefinitionError, TYPE_LIMITS } from '../domain/operation-type-definition.ts'

/** Of the event id, which is kept. */
const EVENT_ID = /^[\x21-\x7e]{1,255}$/
const TIMESTAMP = /^\d{1,12}$/
/** Signatures of one message that are looked at; during a rotation there are two. */
const SIGNATURES_MAX = 16

const SECRET = /^whsec_[A-Za-z0-9+/]+={0,2}$/
/** Of the key that a secret stands for. */
const KEY_BYTES = { min: 24, max: 64 }

/** The secrets in a text, one space between two. Throws a DefinitionError that tells nothing of them. */
export const openSecrets = (secrets: readonly string[], field: string): Webhook[] => {
  if (secrets.length === 0) throw new DefinitionError(field, 'names no secret')
  if (secrets.length > TYPE_LIMITS.callbackSecrets) {
    throw new DefinitionError(field, `names more than ${TYPE_LIMITS.callbackSecrets} secrets`)
  }
  return secrets.map((secret, index) => {
    const which = secrets.length === 1 ? '' : ` (secret ${index + 1} of ${secrets.length})`
    const key = SECRET.test(secret) ? Buffer.from(secret.slice('whsec_'.length), 'base64') : null
    // an odd number of base64 digits decodes to something in Node, and to nothing elsewhere
    if (
      key === null ||
      key.toString('base64').replace(/=+$/, '') !== secret.slice('whsec_'.length).replace(/=+$/, '')
    ) {
      throw new DefinitionError(field, `must be "whsec_" and a base64 key, as Standard Webhooks names it${which}`)
    }
    if (key.length < KEY_BYTES.min || key.length > KEY_BYTES.max) {
      throw new DefinitionError(
        field,
        `must hold a key of ${KEY_BYTES.min} to ${KEY_BYTES.max} bytes, not ${key.length}${which}`,
      )
    }
    return new Webhook(key, { format: 'raw' })
  })
}

/** `now` in milliseconds. Every signature is compared with every secret, in a time that tells nothing of either. */
export const openVerifier =
  (secrets: readonly Webhook[], toleranceSeconds: number, now: () => number = Date.now): CallbackReceiver['verify'] =>
  (headers, body) => {
    const id = headers['webhook-id']
    const timestamp = headers['webhook-timestamp']
    const signatures = headers['webhook-signature']
    if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signatures !== 'string') return false
    if (!EVENT_ID.test(id) || !TIMESTAMP.test(timestamp)) return false
    const seconds = Number(timestamp)
    if (Math.abs(Math.floor(now() / 1_000) - seconds) > toleranceSeconds) return false
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength)
    // the library signs text: other bytes would be replaced before they are compared
    if (!isUtf8(bytes)) return false
    const given = signatures.split(' ', SIGNATURES_MAX).map(digest)
    let matches = false
    for (const secret of secrets) {
      const expected = digest(secret.sign(id, new Date(seconds * 1_000), bytes))
      for (const signature of given) matches = timingSafeEqual(signature, expected) || matches
    }
    return matches
  }

/** Of equal length, whatever was sent. */
const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
