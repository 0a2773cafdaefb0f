/**
 * Sends webhooks from the outbox, at least once each, signed as Standard Webhooks asks (https://www.standardwebhooks.com).
 * storage/webhook-outbox.ts says what it writes, and why a crash between any two lines is safe.
 *
 * A run takes what is due and does not wait for the answers: a slow receiver holds its own few places, and nobody else's.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Webhook } from 'standardwebhooks'
import { formatId } from '../domain/ids.ts'
import {
  type PrivateAddresses,
  WEBHOOK_TRIES_MAX,
  type WebhookAnswer,
  webhookBody,
  webhookVerdict,
} from '../domain/webhook.ts'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import {
  disableSiblings,
  finishTry,
  storeBodies,
  type TakenDelivery,
  takeDueDeliveries,
} from '../storage/webhook-outbox.ts'
import type { MaintenanceService } from './service.ts'
import { openWebhookTransport, type Resolve } from './webhook-transport.ts'

export interface WebhookSettings {
  /** `whsec_…`; empty: this worker sends none. */
  secrets: readonly string[]
  privateAddresses: PrivateAddresses
  /** Over the whole answer. */
  timeoutMs?: number
  resolve?: Resolve
}

export interface WebhookSender extends MaintenanceService {
  /** Waits for what is in flight, for a while; what is cut off then is tried again. */
  close(): Promise<void>
}

const EVERY_MS = 500
const TIMEOUT_MS = 15_000
/** What a sender may need besides the call: to store the bytes before it, and the outcome after it. */
const HOLD_SLACK_MS = 45_000
/** In flight of one worker. */
const FLIGHTS_MAX = 32
/** In flight to one origin, over all workers. */
const FLIGHTS_PER_ORIGIN = 4
const CLOSE_PATIENCE_MS = 5_000

export const openWebhookSender = (
  { database }: Pick<ServiceContext, 'database'>,
  { secrets, timeoutMs = TIMEOUT_MS, ...transportSettings }: WebhookSettings,
  log: Pick<Log, 'warn'>,
): WebhookSender => {
  const signers = secrets.map((secret) => new Webhook(secret))
  const transport = openWebhookTransport({
    ...transportSettings,
    timeoutMs,
    connectionsPerOrigin: FLIGHTS_PER_ORIGIN,
  })
  const flights = new Set<Promise<void>>()
  /** Where the last take ended: each receiver has its turn, however many there are. */
  let afterOrigin = ''

  const finish = async (delivery: TakenDelivery, answer: WebhookAnswer, durationMs: number): Promise<void> => {
    const verdict = webhookVerdict(answer, delivery.tries, Math.random())
    await database.query((connection) =>
      finishTry(connection, {
        tenantId: delivery.tenantId,
        id: delivery.id,
        attempt: delivery.attempt,
        status: answer.kind === 'answered' ? answer.status : null,
        error: answer.kind === 'answered' ? null : answer.code,
        durationMs: Math.round(durationMs),
        state: verdict.kind === 'retry' ? 'pending' : verdict.kind,
        delayMs: verdict.kind === 'retry' ? verdict.delayMs : null,
      }),
    )
    if (verdict.kind === 'disabled') await database.query((connection) => disableSiblings(connection, delivery))
  }

  const send = async (delivery: TakenDelivery, body: string): Promise<void> => {
    const id = formatId('wh', delivery.id)
    const at = new Date(delivery.atSeconds * 1_000)
    const startedAt = performance.now()
    const answer = await transport.post({
      url: delivery.url,
      headers: {
        'content-type': 'application/json',
        'user-agent': 'opledger',
        'webhook-id': id,
        'webhook-timestamp': String(delivery.atSeconds),
        'webhook-signature': signers.map((signer) => signer.sign(id, at, body)).join(' '),
      },
      body,
    })
    await finish(delivery, answer, performance.now() - startedAt)
  }

  /** The bytes of each delivery, stored before the first of them is sent. */
  const bodiesOf = async (taken: readonly TakenDelivery[]): Promise<Map<string, string>> => {
    const bodies = new Map<string, string>()
    const fresh: (TakenDelivery & { body: string })[] = []
    for (const delivery of taken) {
      if (delivery.body !== null) {
        bodies.set(delivery.id, delivery.body)
        continue
      }
      try {
        fresh.push({ ...delivery, body: webhookBody(delivery.event, delivery.operation, delivery.facts) })
      } catch (error) {
        // it takes no other one's turn; its tries run out
        log.warn({ err: error, delivery: delivery.id }, 'a webhook has no body that could be sent')
      }
    }
    if (fresh.length === 0) return bodies
    const stored = await database.query((connection) => storeBodies(connection, fresh))
    return new Map([...bodies, ...stored])
  }

  const launch = (delivery: TakenDelivery, body: string): void => {
    const flight = send(delivery, body)
      .catch((error: unknown) =>
        log.warn({ err: error, delivery: delivery.id }, 'a webhook could not be brought home; it is sent again'),
      )
      .finally(() => flights.delete(flight))
    flights.add(flight)
  }

  return {
    name: 'webhooks',
    everyMs: EVERY_MS,
    async runOnce() {
      if (signers.length === 0) return { more: false }
      const free = FLIGHTS_MAX - flights.size
      if (free === 0) {
        await Promise.race([...flights, sleep(EVERY_MS, undefined, { ref: false })])
        return { more: true }
      }
      const { taken, next } = await takeDueDeliveries(database, {
        limit: free,
        perOrigin: FLIGHTS_PER_ORIGIN,
        afterOrigin,
        holdMs: timeoutMs + HOLD_SLACK_MS,
        triesMax: WEBHOOK_TRIES_MAX,
      })
      const wrapped = afterOrigin !== '' && next === ''
      afterOrigin = next
      const bodies = await bodiesOf(taken)
      for (const delivery of taken) {
        const body = bodies.get(delivery.id)
        if (body !== undefined) launch(delivery, body)
      }
      return { more: taken.length > 0 || next !== '' || wrapped }
    },
    async close() {
      const landed = Promise.allSettled(flights)
      let timer: NodeJS.Timeout | undefined
      const patience = new Promise((resolve) => {
        timer = setTimeout(resolve, CLOSE_PATIENCE_MS)
      })
      await Promise.race([landed, patience])
      clearTimeout(timer)
      await transport.close()
      await landed
    },
  }
}
