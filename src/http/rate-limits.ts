/**
 * Refuses callers that ask too often: 429 with `Retry-After`, and the fields of draft-ietf-httpapi-ratelimit-headers-10
 * (`RateLimit-Policy: "read";q=5000;w=10`, `RateLimit: "read";r=4999;t=1`) on every answer that a limit applies to.
 *
 * - Who has shown who they are has a bucket for reads and one for writes, per principal and process; workers elsewhere have one
 *   of their own. Credentials that were good before are charged before they are looked up. Nobody is cut for polling: a 304 is
 *   given back, and conditional reads have the reserve.
 * - Who has not is known by address, which has three buckets under one policy: one for refused credentials, one for open routes,
 *   one for callbacks. So strangers behind the same address take from none but their own kind.
 *   - Refused credentials are charged, and once the bucket is empty nothing from there is looked up any more. Credentials that
 *     were good before pass by it: who guesses keys behind a proxy locks nobody out.
 *   - Callbacks are known by their signature: only those that are refused are charged.
 * - What keeps work safe (cancels, pauses, results and heartbeats of workers, callbacks) has the reserve as well.
 *
 * Why not @fastify/rate-limit: its fields are those of older drafts, its counter is a fixed window that lets twice the rate pass
 * at a boundary, it knows no reserve and nothing that is given back, and its hook runs before or after the authentication, not
 * around it. What would be left of it is a map with a bound.
 */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { AppError } from '../domain/errors.ts'
import { callerNetwork } from '../domain/network-address.ts'
import {
  giveBack,
  RATE_WINDOW_SECONDS,
  type RateLimits,
  type RatePolicy,
  standing,
  type Taken,
  take,
} from '../domain/rate-limit.ts'
import type { Principal } from '../services/principal.ts'
import { bearerOf } from './auth.ts'
import { MAX_ADDRESS_BYTES, MAX_RATE_CALLERS } from './limits.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** What the request was charged to. */
    charged: { bucket: Bucket; caller: string } | null
  }
}

/** The latest `MAX_RATE_CALLERS` entries: what was written longest ago is forgotten. */
class Latest<Value> {
  readonly #values = new Map<string, Value>()

  get(key: string): Value | undefined {
    return this.#values.get(key)
  }

  set(key: string, value: Value): void {
    this.#values.delete(key)
    this.#values.set(key, value)
    const [oldest] = this.#values.size > MAX_RATE_CALLERS ? this.#values.keys() : []
    if (oldest !== undefined) this.#values.delete(oldest)
  }

  forget(key: string): void {
    this.#values.delete(key)
  }
}

/** One number a caller. To be forgotten hands out a full bucket, which most have again after seconds anyway. */
class Bucket {
  readonly policy: RatePolicy
  readonly #perSecond: number
  readonly #fullAtMs = new Latest<number>()

  constructor(policy: RatePolicy, perSecond: number) {
    this.policy = policy
    this.#perSecond = perSecond
  }

  /** Answers with the pause that is needed before, in milliseconds; 0: granted. */
  take(caller: string, isReserved: boolean): number {
    const taken = this.#ask(caller, isReserved)
    if (taken.granted) this.#fullAtMs.set(caller, taken.fullAtMs)
    return taken.granted ? 0 : taken.retryInMs
  }

  /** What `take` would answer. */
  look(caller: string, isReserved: boolean): number {
    const taken = this.#ask(caller, isReserved)
    return taken.granted ? 0 : taken.retryInMs
  }

  #ask(caller: string, isReserved: boolean): Taken {
    return take(this.#fullAtMs.get(caller) ?? 0, this.#perSecond, performance.now(), isReserved)
  }

  giveBack(caller: string): void {
    const fullAtMs = this.#fullAtMs.get(caller)
    if (fullAtMs !== undefined) this.#fullAtMs.set(caller, giveBack(fullAtMs, this.#perSecond))
  }

  tell(reply: FastifyReply, caller: string): void {
    const { remaining, fullInSeconds } = standing(this.#fullAtMs.get(caller) ?? 0, this.#perSecond, performance.now())
    reply
      .header(
        'ratelimit-policy',
        `"${this.policy}";q=${this.#perSecond * RATE_WINDOW_SECONDS};w=${RATE_WINDOW_SECONDS}`,
      )
      .header('ratelimit', `"${this.policy}";r=${remaining};t=${fullInSeconds}`)
  }
}

/**
 * A key or token counts alone: whatever stands around it, or is sent beside it, makes no other caller of it. Where none is sent
 * (AUTH=off) the name is the whole of them.
 */
const credentialsOf = (request: FastifyRequest): string => {
  const bearer = bearerOf(request)
  const known = bearer === null ? { name: request.headers['x-principal'] } : { bearer }
  return createHash('sha256').update(JSON.stringify(known)).digest('base64url')
}

/** A socket that is gone by now has none. */
const addressOf = ({ ip }: { ip?: string }): string => callerNetwork((ip ?? '').slice(0, MAX_ADDRESS_BYTES))

const isRead = ({ method }: FastifyRequest): boolean => method === 'GET' || method === 'HEAD'

const hasReserve = (request: FastifyRequest): boolean =>
  request.routeOptions.config.refusal === 'last' || (isRead(request) && request.headers['if-none-match'] !== undefined)

export interface RateGuard {
  /** Answers with the principal that `authenticate` answers with. @throws AppError `too-many-requests` */
  admit(request: FastifyRequest, reply: FastifyReply, authenticate: () => Promise<Principal>): Promise<Principal>
  /** On routes that are open to everybody. @throws AppError `too-many-requests` */
  admitStranger(request: FastifyRequest, reply: FastifyReply): void
}

const UNLIMITED: RateGuard = {
  admit: (_request, _reply, authenticate) => authenticate(),
  admitStranger: () => {},
}

/** `limits` null: nobody is limited. */
export const openRateGuard = (app: FastifyInstance, limits: RateLimits | null): RateGuard => {
  if (limits === null) return UNLIMITED
  const bucketOf = (policy: RatePolicy): Bucket => new Bucket(policy, limits[policy])
  const [reads, writes, work] = [bucketOf('read'), bucketOf('write'), bucketOf('work')]
  const [refused, open, callbacks] = [bucketOf('address'), bucketOf('address'), bucketOf('address')]
  /** Whose the credentials are that were good before. */
  const callers = new Latest<string>()

  const bucketFor = (request: FastifyRequest): Bucket => {
    if (request.routeOptions.url?.startsWith('/worker/')) return work
    return isRead(request) ? reads : writes
  }

  const charge = (request: FastifyRequest, reply: FastifyReply, bucket: Bucket, caller: string): void => {
    const pauseMs = bucket.take(caller, hasReserve(request))
    bucket.tell(reply, caller)
    if (pauseMs > 0) throw refusal(reply, bucket, pauseMs)
    request.charged = { bucket, caller }
  }

  const admitUnknown = async (
    request: FastifyRequest,
    reply: FastifyReply,
    authenticate: () => Promise<Principal>,
  ): Promise<Principal> => {
    const address = addressOf(request)
    const isReserved = hasReserve(request)
    const pauseMs = refused.look(address, isReserved)
    if (pauseMs > 0) {
      refused.tell(reply, address)
      throw refusal(reply, refused, pauseMs)
    }
    try {
      return await authenticate()
    } catch (error) {
      // not for what we are to blame for, as when the database is away
      if (isRefused(error)) {
        refused.take(address, isReserved)
        refused.tell(reply, address)
      }
      throw error
    }
  }

  app.decorateRequest('charged', null)
  app.addHook('onSend', ({ charged }, reply, _payload, done) => {
    // the signature says who it is, and it was good
    const isProven = charged?.bucket === callbacks && reply.statusCode < 400
    if (charged !== null && (reply.statusCode === 304 || isProven)) {
      charged.bucket.giveBack(charged.caller)
      charged.bucket.tell(reply, charged.caller)
    }
    done()
  })

  return {
    async admit(request, reply, authenticate) {
      const credentials = credentialsOf(request)
      const caller = callers.get(credentials)
      if (caller === undefined) {
        const principal = await admitUnknown(request, reply, authenticate)
        const name = `${principal.tenantId} ${principal.name}`
        callers.set(credentials, name)
        charge(request, reply, bucketFor(request), name)
        return principal
      }
      charge(request, reply, bucketFor(request), caller)
      try {
        return await authenticate()
      } catch (error) {
        // revoked by now, or another one's: a right that is missing stays the caller's own affair
        if (isRefused(error) && error.code === 'unauthenticated') callers.forget(credentials)
        throw error
      }
    },
    admitStranger(request, reply) {
      const { refusal: when } = request.routeOptions.config
      if (when !== 'never') charge(request, reply, when === 'last' ? callbacks : open, addressOf(request))
    },
  }
}

const isRefused = (error: unknown): error is AppError =>
  error instanceof AppError && (error.code === 'unauthenticated' || error.code === 'forbidden')

const refusal = (reply: FastifyReply, { policy }: Bucket, pauseMs: number): AppError => {
  const seconds = Math.ceil(pauseMs / 1_000)
  reply.header('retry-after', String(seconds))
  const what = policy === 'address' ? 'requests from this address' : `requests of this caller, of the kind "${policy}"`
  return new AppError('too-many-requests', `Too many ${what}; try again in ${seconds} s`, { extra: { policy } })
}
