/**
 * The outbox of webhooks. A delivery is a row of `webhook_deliveries`, inserted by the very statement that makes its operation
 * final or `reconciliation_required` (settle.ts, approvals.ts): there is one for each such event whose commit succeeded, and
 * none for one that did not. Nothing is sent by who settles. Workers send, and this file is all that they write:
 *
 *   pending ──take──▶ pending, held ──finish──▶ delivered | failed | disabled | pending (due later)
 *      ▲                    │ the hold ran out: its sender is gone; due again
 *      └────── redeliver (webhook-deliveries.ts), from every state but held ─────
 *
 * Why a crash is safe, line by line:
 *   after the take, before the bytes are stored or sent: the hold runs out, the delivery is due again, one try is charged, so
 *     that a delivery that kills its senders ends as `failed` too. The log shows a try without an end.
 *   after the send, before the finish: it is sent again, with the same id and the same bytes, as the body was stored before
 *     the first send. At least once: the receiver drops what it has seen by the id.
 *   a sender that was held up for longer than its hold: `attempts` has grown since, or a redelivery took the hold away, so
 *     its finish moves nothing but its own line of the log. If neither has happened yet, its outcome counts.
 *   after a 410 was written, before the siblings were disabled: they are sent, and answered with 410 themselves.
 *
 * Two senders never take at once (a transaction's advisory lock, which makes the limit per origin exact), so no delivery has
 * two tries in flight, unless a hold ran out under a sender that still lives: a hold is longer than any call.
 */

import type { OperationStatus } from '../domain/operation.ts'
import type { WebhookEvent, WebhookFacts } from '../domain/webhook.ts'
import { ints, texts } from './array-literal.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'

export interface DeliveryKey {
  tenantId: number
  id: string
}

export interface TakenDelivery extends DeliveryKey {
  event: WebhookEvent
  url: string
  origin: string
  operation: { id: string; type: string; status: OperationStatus }
  facts: WebhookFacts
  /** Null before the first try. */
  body: string | null
  /** The number of this try: what it writes is fenced by it. */
  attempt: number
  /** Those since the delivery or its last redelivery began, with this one. */
  tries: number
  /** When this try began, in seconds since the epoch. */
  atSeconds: number
}

/** Receivers looked at in one take, at most; the next take goes on behind the last one. */
const ORIGINS_MAX = 256
/** pg_advisory_xact_lock key: "webhooks" in hex, cut to 63 bits. */
const TAKE_LOCK = '8603390863846894451'

export interface Take {
  limit: number
  /** Deliveries to one origin that are held at a time, over all workers. */
  perOrigin: number
  /** `next` of the take before; empty: from the first one on. */
  afterOrigin: string
  holdMs: number
  triesMax: number
}

const isDue = async ({ sql }: Connection): Promise<boolean> => {
  const [row] = await sql<{ due: boolean }>`
    select exists (select from webhook_deliveries where state = 'pending' and next_attempt_at <= now()) as due`
  return row?.due ?? false
}

/**
 * Takes due deliveries, origin by origin: a slow receiver with a long queue delays no other one's. None: nothing is due, or
 * another sender takes just now. `next` is where the next take goes on; empty: every origin had its turn.
 */
export const takeDueDeliveries = async (
  database: Database,
  take: Take,
): Promise<{ taken: TakenDelivery[]; next: string }> => {
  const none = { taken: [], next: '' }
  if (!(await database.query(isDue))) return none
  return database.transaction(async ({ sql }) => {
    const [lock] = await sql<{ held: boolean }>`select pg_try_advisory_xact_lock(${TAKE_LOCK}::bigint) as held`
    if (!lock?.held) return none
    await failWornOut(sql, take)
    const origins = await readOrigins(sql, take.afterOrigin)
    const taken = await takeOf(sql, origins, take)
    const served = new Set(taken.map(({ origin }) => origin))
    if (taken.length === take.limit) return { taken, next: origins.findLast((origin) => served.has(origin)) ?? '' }
    return { taken, next: origins.length === ORIGINS_MAX ? (origins.at(-1) ?? '') : '' }
  })
}

/** Those whose last try has lost its sender: a try that ended leaves no hold behind. */
const failWornOut = async (sql: Sql, { limit, triesMax }: Take): Promise<void> => {
  await sql`
    with worn as materialized (
      select tenant_id, id from webhook_deliveries
      where state = 'pending' and held_until <= now() and next_attempt_at <= now() and tries >= ${triesMax}
      order by held_until limit ${limit} for no key update skip locked),
    log as (
      update webhook_attempts a set error = 'SENDER_LOST'
      from worn w where a.tenant_id = w.tenant_id and a.delivery_id = w.id and a.duration_ms is null)
    update webhook_deliveries d set
      state = 'failed', next_attempt_at = null, held_until = null, last_status = null, last_error = 'SENDER_LOST'
    from worn w where d.tenant_id = w.tenant_id and d.id = w.id`
}

/** Origins with something pending: one index probe each, however long their queues are. */
const readOrigins = async (sql: Sql, after: string): Promise<string[]> => {
  const rows = await sql<{ origin: string }>`
    with recursive receiver (origin, n) as (
      (select origin, 1 from webhook_deliveries where state = 'pending' and origin > ${after} order by origin limit 1)
      union all
      select (select d.origin from webhook_deliveries d
        where d.state = 'pending' and d.origin > r.origin order by d.origin limit 1), r.n + 1
      from receiver r where r.origin is not null and r.n < ${ORIGINS_MAX})
    select origin from receiver where origin is not null order by n`
  return rows.map(({ origin }) => origin)
}

const takeOf = (sql: Sql, origins: readonly string[], take: Take): Promise<TakenDelivery[]> =>
  sql<TakenDelivery>`
    with pick as materialized (
      select due.* from unnest(${texts(origins)}::text[]) as r (origin), lateral (
        select d.tenant_id, d.id from webhook_deliveries d
        where d.state = 'pending' and d.origin = r.origin and d.next_attempt_at <= now() and d.tries < ${take.triesMax}
        order by d.next_attempt_at
        limit greatest(0, ${take.perOrigin}::int - (
          select count(*) from webhook_deliveries h
          where h.state = 'pending' and h.origin = r.origin and h.held_until > now()))
        for no key update skip locked) due
      limit ${take.limit}),
    taken as (
      update webhook_deliveries d set
        attempts = d.attempts + 1, tries = d.tries + 1, held_until = now() + ${take.holdMs} * interval '1 ms',
        next_attempt_at = now() + ${take.holdMs} * interval '1 ms'
      from pick p where d.tenant_id = p.tenant_id and d.id = p.id
      returning d.*),
    lost as (
      update webhook_attempts a set error = 'SENDER_LOST'
      from taken t
      where a.tenant_id = t.tenant_id and a.delivery_id = t.id and a.attempt = t.attempts - 1 and a.duration_ms is null),
    logged as (
      insert into webhook_attempts (tenant_id, delivery_id, attempt)
      select tenant_id, id, attempts from taken
      returning tenant_id, delivery_id, at)
    select t.tenant_id as "tenantId", t.id, t.event, t.url, t.origin,
      jsonb_build_object('id', t.operation_id, 'type', o.type, 'status', t.status) as operation, t.facts, t.body,
      t.attempts as attempt, t.tries, floor(extract(epoch from l.at))::float8 as "atSeconds"
    from taken t
      join logged l on l.tenant_id = t.tenant_id and l.delivery_id = t.id
      join operations o on o.tenant_id = t.tenant_id and o.id = t.operation_id`

/** Stores what will be sent, now and at each repetition. Answers with the bytes that stand there, by id. */
export const storeBodies = async (
  { sql }: Connection,
  bodies: readonly (DeliveryKey & { body: string })[],
): Promise<Map<string, string>> => {
  const rows = await sql<{ id: string; body: string }>`
    update webhook_deliveries d set body = coalesce(d.body, u.body)
    from unnest(${ints(bodies.map((each) => each.tenantId))}::int[], ${texts(bodies.map((each) => each.id))}::uuid[],
      ${texts(bodies.map((each) => each.body))}::text[]) as u (tenant_id, id, body)
    where d.tenant_id = u.tenant_id and d.id = u.id
    returning d.id, d.body`
  return new Map(rows.map((row) => [row.id, row.body]))
}

export interface FinishedTry extends DeliveryKey {
  attempt: number
  /** Of the answer; null: there is none, and `error` says why. */
  status: number | null
  error: string | null
  durationMs: number
  /** What becomes of the delivery; `delayMs` is null unless it stays pending. */
  state: 'delivered' | 'failed' | 'disabled' | 'pending'
  delayMs: number | null
}

/** Ends a try. False: the delivery has moved on without this sender; the log keeps what it saw. */
export const finishTry = async ({ sql }: Connection, done: FinishedTry): Promise<boolean> => {
  const rows = await sql<{ moved: boolean }>`
    with log as (
      update webhook_attempts set status = ${done.status}, error = ${done.error}, duration_ms = ${done.durationMs}
      where tenant_id = ${done.tenantId} and delivery_id = ${done.id}::uuid and attempt = ${done.attempt})
    update webhook_deliveries set
      state = ${done.state}, held_until = null, last_status = ${done.status}, last_error = ${done.error},
      next_attempt_at = clock_timestamp() + ${done.delayMs}::float8 * interval '1 ms',
      delivered_at = case when ${done.state} = 'delivered' then clock_timestamp() else delivered_at end
    where tenant_id = ${done.tenantId} and id = ${done.id}::uuid and state = 'pending' and attempts = ${done.attempt}
      and held_until is not null
    returning true as moved`
  return rows.length > 0
}

/** The receiver of an operation is gone: what else waits for it is not sent. */
export const disableSiblings = async ({ sql }: Connection, { tenantId, id }: DeliveryKey): Promise<void> => {
  await sql`
    with sibling as materialized (
      select s.tenant_id, s.id from webhook_deliveries d
        join webhook_deliveries s on s.tenant_id = d.tenant_id and s.operation_id = d.operation_id
      where d.tenant_id = ${tenantId} and d.id = ${id}::uuid and s.state = 'pending'
      order by s.id for no key update of s)
    update webhook_deliveries d set
      state = 'disabled', next_attempt_at = null, held_until = null, last_error = 'RECEIVER_GONE'
    from sibling s where d.tenant_id = s.tenant_id and d.id = s.id and d.state = 'pending'`
}

const KEPT_DAYS = 30
const ROWS_PER_RUN = 10_000

/** Deliveries that have ended, with their log. */
export const forgetOldDeliveries = async ({ sql }: Connection): Promise<void> => {
  await sql`
    with old as materialized (
      select tenant_id, id from webhook_deliveries
      where state <> 'pending' and created_at < now() - ${KEPT_DAYS} * interval '1 day'
      limit ${ROWS_PER_RUN} for update skip locked),
    log as (
      delete from webhook_attempts a using old where a.tenant_id = old.tenant_id and a.delivery_id = old.id)
    delete from webhook_deliveries d using old where d.tenant_id = old.tenant_id and d.id = old.id`
}
