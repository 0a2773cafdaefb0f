/**
 * What a webhook says and when it is said again. Pure: the same facts give the same bytes, so that a delivery can be repeated
 * under its id with the signature still covering what was sent.
 */
import { formatId } from './ids.ts'
import { isPrivateHost } from './network-address.ts'
import { type Counts, conservation, type OperationStatus } from './operation.ts'

export const WEBHOOK_EVENTS = ['operation.settled', 'operation.reconciliation_required'] as const
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number]

/**
 * `pending`: due at its time, or being sent. `delivered`: answered 2xx. `failed`: tries used up. `disabled`: the receiver said
 * 410 Gone, to this one or to another one of the operation. A redelivery makes it `pending` again, from each of them.
 */
export const DELIVERY_STATES = ['pending', 'delivered', 'failed', 'disabled'] as const
export type DeliveryState = (typeof DELIVERY_STATES)[number]

/** Of the URL in the form in which it is stored and called. */
export const CALLBACK_URL_BYTES_MAX = 2_048

/** Whether webhooks may go to addresses of private networks. */
export type PrivateAddresses = 'refuse' | 'allow'

/** The URL in one spelling (host in lower case, addresses in decimal, no default port), or what is wrong with it. */
export const parseCallbackUrl = (
  text: string,
  privateAddresses: PrivateAddresses,
): { url: string } | { fault: string } => {
  if (!URL.canParse(text)) return { fault: 'is not an absolute URL' }
  const url = new URL(text)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return { fault: 'is neither https nor http' }
  if (url.username !== '' || url.password !== '') return { fault: 'carries credentials' }
  if (text.includes('#')) return { fault: 'carries a fragment' }
  if (Buffer.byteLength(url.href) > CALLBACK_URL_BYTES_MAX) {
    return { fault: `is longer than ${CALLBACK_URL_BYTES_MAX} bytes` }
  }
  if (privateAddresses === 'refuse' && isPrivateHost(url.hostname)) {
    return { fault: 'names a host in a private network' }
  }
  return { url: url.href }
}

export const WEBHOOK_SECRETS_MAX = 8
const SECRET_BYTES_MIN = 24
const SECRET_BYTES_MAX = 64

/** Secrets as Standard Webhooks writes them, separated by white space; null: one of them is none, or they are too many. */
export const parseWebhookSecrets = (text: string): string[] | null => {
  const secrets = text.trim().split(/\s+/)
  const areValid = secrets.every((secret) => {
    const base64 = /^whsec_(.+)$/.exec(secret)?.[1] ?? ''
    const bytes = Buffer.from(base64, 'base64')
    // Node's decoder skips what is no base64: only what comes out as it went in is
    return bytes.toString('base64') === base64 && bytes.length >= SECRET_BYTES_MIN && bytes.length <= SECRET_BYTES_MAX
  })
  return areValid && secrets.length <= WEBHOOK_SECRETS_MAX ? secrets : null
}

/** What was true at the event, as the commit that made it stored it. */
export interface WebhookFacts {
  /** RFC 3339. */
  timestamp: string
  /** As the resource shows it: with the versions of the shards. */
  version: number
  counts: Counts
  /** RFC 3339. */
  completed_at: string | null
}

/** Thin on purpose: no inputs, no results, nothing that a type may have to mask. A receiver reads the rest at `links.self`. */
export const webhookBody = (
  event: WebhookEvent,
  operation: { id: string; type: string; status: OperationStatus },
  facts: WebhookFacts,
): string => {
  const id = formatId('op', operation.id)
  const { total, applied, skipped, failed, uncertain, unprocessed } = conservation(facts.counts)
  return JSON.stringify({
    type: event,
    timestamp: inUtc(facts.timestamp),
    data: {
      operation: {
        id,
        type: operation.type,
        status: operation.status,
        version: facts.version,
        counts: { total, applied, skipped, failed, uncertain, unprocessed },
        completed_at: facts.completed_at === null ? null : inUtc(facts.completed_at),
        links: { self: `/operations/${id}` },
      },
    },
  })
}

/** JSON times of a session in UTC. */
const inUtc = (time: string): string => time.replace(/\+00:00$/, 'Z')

const SECOND_MS = 1_000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS

/** The pause after the first try, the second, and so on; a bit over three days in all. */
const PAUSES_MS = [
  5 * SECOND_MS,
  5 * MINUTE_MS,
  30 * MINUTE_MS,
  2 * HOUR_MS,
  5 * HOUR_MS,
  10 * HOUR_MS,
  14 * HOUR_MS,
  20 * HOUR_MS,
  24 * HOUR_MS,
]
/** Tries of a delivery, and of each redelivery. */
export const WEBHOOK_TRIES_MAX = PAUSES_MS.length + 1
/** Either way, so that what failed together does not come back together. */
const JITTER = 0.2
/** A receiver can ask for a longer pause, up to this. */
const RETRY_AFTER_MS_MAX = 24 * HOUR_MS

/** What is known after one try. */
export type WebhookAnswer =
  | { kind: 'answered'; status: number; retryAfterMs: number | null }
  /** No whole answer: `code` says why. */
  | { kind: 'unanswered'; code: string }

export type WebhookVerdict =
  | { kind: 'delivered' }
  | { kind: 'disabled' }
  | { kind: 'retry'; delayMs: number }
  | { kind: 'failed' }

/** `tries` counts the one just made; `random` is in [0, 1). A redirect is a failure like any other: it is not followed. */
export const webhookVerdict = (answer: WebhookAnswer, tries: number, random: number): WebhookVerdict => {
  if (answer.kind === 'answered' && answer.status >= 200 && answer.status < 300) return { kind: 'delivered' }
  if (answer.kind === 'answered' && answer.status === 410) return { kind: 'disabled' }
  const pauseMs = PAUSES_MS[Math.max(0, tries - 1)]
  if (pauseMs === undefined) return { kind: 'failed' }
  const delayMs = Math.round(pauseMs * (1 - JITTER + 2 * JITTER * random))
  return { kind: 'retry', delayMs: Math.max(delayMs, askedForMs(answer)) }
}

const askedForMs = (answer: WebhookAnswer): number => {
  const mayAsk = answer.kind === 'answered' && (answer.status === 429 || answer.status === 503)
  return mayAsk ? Math.min(RETRY_AFTER_MS_MAX, Math.max(0, answer.retryAfterMs ?? 0)) : 0
}

/** RFC 9110 `Retry-After`, seconds or a date, as a pause from `nowMs` on; null: none that can be read. */
export const parseRetryAfter = (header: string, nowMs: number): number | null => {
  if (/^\d{1,10}$/.test(header)) return Number(header) * SECOND_MS
  const at = /^[A-Z][a-z]{2}/.test(header) ? Date.parse(header) : Number.NaN
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs)
}
