/**
 * Calls to the outside world: one undici pool per origin, no retry, no redirect, an own deadline over the whole call.
 *
 * The one question that matters after a failed call is whether a byte of the request may have left. undici starts a
 * request (`onRequestStart`) right before it writes to a connected socket, and a request that was not started yet is
 * never on the wire: it waits for a connection. So
 *   not started → `unsent`: refused, no DNS, no route, TLS failed, no connection in time. Safe to repeat.
 *   started, no complete answer → `broken`: reset, closed, unreadable, out of time. It may have had its effect, also
 *   where the socket was an idle one that the other side was just closing.
 *   a complete answer, or one longer than we read → `answered`.
 * A deadline that passes before the start forbids the start, so `unsent` stays true afterwards.
 * A request can wait for its connection for as long as its deadline allows: for a handshake, or for one of the pool's sockets.
 * So whether it may begin at all is asked at the start, in the same turn of the event loop as the write:
 *   told no → `withheld`: nothing was written, nor will be.
 */
import { type Dispatcher, Pool } from 'undici'
import type { OutboundRequest } from './request-template.ts'

export type Exchange =
  | { kind: 'answered'; status: number; body: string }
  | { kind: 'unsent'; reasonCode: string; message: string; isFault: boolean }
  | { kind: 'withheld' }
  | { kind: 'broken'; reasonCode: 'TIMEOUT' | 'CONNECTION_LOST' | 'UNREADABLE_ANSWER'; message: string }

export interface Outbound {
  /** Never throws, and answers within `timeoutMs`. `mayStart` is asked right before the first byte; without it, it may. */
  exchange(request: OutboundRequest, timeoutMs: number, mayStart?: () => boolean): Promise<Exchange>
  /** Ends at once; calls that are still in flight are broken. */
  close(): Promise<void>
}

/** Sockets to one origin; calls beyond wait, within their own deadline. */
const CONNECTIONS_MAX = 512
/** Shorter than what servers commonly keep idle sockets for (5 s and more): we close first, not under a request. */
const KEEP_ALIVE_MS = 4_000
const CONNECT_TIMEOUT_MS = 10_000
/** Read of an answer; the rest is not waited for, as the status has been said. */
const BODY_BYTES_MAX = 64 * 1024
const HEADER_BYTES_MAX = 16 * 1024
/** undici's own timers stand behind our deadline, never before it. */
const TIMEOUT_SLACK_MS = 5_000

class DeadlinePassed extends Error {
  override readonly name = 'DeadlinePassed'
}
class Withheld extends Error {
  override readonly name = 'Withheld'
}
class EnoughRead extends Error {
  override readonly name = 'EnoughRead'
}

export const createOutbound = (): Outbound => {
  const pools = new Map<string, Pool>()
  let isClosed = false
  const poolOf = (origin: string): Pool => {
    const known = pools.get(origin)
    if (known !== undefined) return known
    const pool = new Pool(origin, {
      connections: CONNECTIONS_MAX,
      pipelining: 1,
      allowH2: false,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      connect: { timeout: CONNECT_TIMEOUT_MS },
      maxHeaderSize: HEADER_BYTES_MAX,
    })
    pools.set(origin, pool)
    return pool
  }
  return {
    exchange: (request, timeoutMs, mayStart = () => true) =>
      isClosed
        ? Promise.resolve({
            kind: 'unsent',
            reasonCode: 'SHUTTING_DOWN',
            message: 'the client is closed',
            isFault: false,
          })
        : exchange(poolOf(request.origin), request, timeoutMs, mayStart),
    close: async () => {
      isClosed = true
      await Promise.all([...pools.values()].map((pool) => pool.destroy()))
      pools.clear()
    },
  }
}

const exchange = (
  pool: Pool,
  request: OutboundRequest,
  timeoutMs: number,
  mayStart: () => boolean,
): Promise<Exchange> =>
  new Promise((resolve) => {
    let started: Dispatcher.DispatchController | null = null
    let isSettled = false
    let status = 0
    let length = 0
    const chunks: Buffer[] = []
    const settle = (outcome: Exchange): void => {
      isSettled = true
      clearTimeout(deadline)
      resolve(outcome)
    }
    const answered = (): Exchange => ({ kind: 'answered', status, body: Buffer.concat(chunks).toString('utf8') })
    const deadline = setTimeout(() => {
      settle(started === null ? unsentInTime(timeoutMs) : brokenInTime(timeoutMs))
      started?.abort(new DeadlinePassed())
    }, timeoutMs)
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart(controller) {
        // Too late to begin; and a request that was started once is never written a second time.
        if (isSettled || started !== null) return controller.abort(new DeadlinePassed())
        if (mayStart()) {
          started = controller
          return
        }
        settle({ kind: 'withheld' })
        controller.abort(new Withheld())
      },
      onResponseStart(_controller, statusCode) {
        status = statusCode
      },
      onResponseData(controller, chunk) {
        if (isSettled) return
        const room = BODY_BYTES_MAX - length
        chunks.push(chunk.length > room ? chunk.subarray(0, room) : chunk)
        length += chunk.length
        if (length <= BODY_BYTES_MAX) return
        settle(answered())
        controller.abort(new EnoughRead())
      },
      onResponseEnd() {
        if (!isSettled) settle(answered())
      },
      onResponseError(_controller, error) {
        if (!isSettled) settle(started === null ? describeUnsent(error) : describeBroken(error))
      },
    }
    try {
      pool.dispatch(
        {
          method: request.method as Dispatcher.HttpMethod,
          path: request.path,
          headers: request.headers,
          body: request.body,
          headersTimeout: timeoutMs + TIMEOUT_SLACK_MS,
          bodyTimeout: timeoutMs + TIMEOUT_SLACK_MS,
        },
        handler,
      )
    } catch (error) {
      if (!isSettled) settle(started === null ? describeUnsent(error) : describeBroken(error))
    }
  })

const unsentInTime = (timeoutMs: number): Exchange => ({
  kind: 'unsent',
  reasonCode: 'CONNECT_TIMEOUT',
  message: `no connection within ${timeoutMs} ms`,
  isFault: false,
})

const brokenInTime = (timeoutMs: number): Exchange => ({
  kind: 'broken',
  reasonCode: 'TIMEOUT',
  message: `no complete answer within ${timeoutMs} ms`,
})

const describeBroken = (error: unknown): Exchange => {
  const code = errorCode(error)
  const message = `the connection broke before the answer was complete (${code})`
  if (/^(?:HPE_.*|HTTPParserError|UND_ERR_HEADERS_OVERFLOW)$/.test(code)) {
    return { kind: 'broken', reasonCode: 'UNREADABLE_ANSWER', message: `the answer is not valid HTTP (${code})` }
  }
  return { kind: 'broken', reasonCode: code.endsWith('_TIMEOUT') ? 'TIMEOUT' : 'CONNECTION_LOST', message }
}

const UNSENT_REASONS: readonly (readonly [RegExp, string])[] = [
  [/^ECONNREFUSED$/, 'CONNECTION_REFUSED'],
  [/^(?:ENOTFOUND|EAI_[A-Z]+|ENODATA)$/, 'DNS_FAILURE'],
  [/^(?:UND_ERR_CONNECT_TIMEOUT|ETIMEDOUT)$/, 'CONNECT_TIMEOUT'],
  [/^(?:EHOSTUNREACH|ENETUNREACH|EHOSTDOWN|ENETDOWN|EADDRNOTAVAIL)$/, 'HOST_UNREACHABLE'],
  [/^(?:ERR_TLS_|ERR_SSL_|CERT_|EPROTO$|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|HOSTNAME_MISMATCH)/, 'TLS_FAILURE'],
  [/^UND_ERR_(?:DESTROYED|CLOSED)$/, 'SHUTTING_DOWN'],
]

const describeUnsent = (error: unknown): Exchange => {
  const code = errorCode(error)
  const reasonCode = UNSENT_REASONS.find(([pattern]) => pattern.test(code))?.[1] ?? 'NOT_SENT'
  // The transport refused the request itself: it would do so every time.
  const isFault = code === 'UND_ERR_INVALID_ARG'
  return {
    kind: 'unsent',
    reasonCode: isFault ? 'INVALID_REQUEST' : reasonCode,
    message: `nothing was sent (${code})`,
    isFault,
  }
}

const errorCode = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' && code !== '' ? code : error instanceof Error ? error.name : 'unknown'
}
