/**
 * One POST to a receiver: no redirect, no retry, a deadline over the whole answer, and no way into a private network. A host
 * that is an address is judged as it stands; a name when it is resolved, at each connection, so that a name that changes its
 * mind after the submission (DNS rebinding) gains nothing.
 */
import { type LookupAddress, type LookupAllOptions, type LookupOptions, lookup } from 'node:dns'
import { Agent } from 'undici'
import { isPrivateAddress, isPrivateHost } from '../domain/network-address.ts'
import { type PrivateAddresses, parseRetryAfter, type WebhookAnswer } from '../domain/webhook.ts'

export interface WebhookTransport {
  /** Never throws, and answers within the deadline. */
  post(request: { url: string; headers: Record<string, string>; body: string }): Promise<WebhookAnswer>
  /** Ends calls in flight at once. */
  close(): Promise<void>
}

/** Read of an answer; the rest is not waited for, as the status has been said. */
const ANSWER_BYTES_MAX = 64 * 1024
const HEADER_BYTES_MAX = 16 * 1024
const KEEP_ALIVE_MS = 4_000
/** undici's own timers stand behind our deadline, never before it. */
const TIMEOUT_SLACK_MS = 5_000

class PrivateAddress extends Error {
  override readonly name = 'PrivateAddress'
  readonly code = 'PRIVATE_ADDRESS'
}

type LookupCallback = (error: Error | null, address: string | LookupAddress[], family?: number) => void

/** `dns.lookup`, asked for all addresses of a name. */
export type Resolve = (
  hostname: string,
  options: LookupAllOptions,
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void

/**
 * What a socket asks before it connects to a name, without the addresses that are private. It connects to what is answered here
 * and asks nobody again: between the check and the connection there is nothing that could change.
 */
export const publicLookup =
  (resolve: Resolve, isGuarded: boolean) =>
  (hostname: string, options: LookupOptions, callback: LookupCallback): void =>
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, [])
      const found = isGuarded ? addresses.filter(({ address }) => !isPrivateAddress(address)) : addresses
      const [first] = found
      if (first === undefined) return callback(new PrivateAddress(`${hostname} is in a private network`), [])
      if (options.all) callback(null, found)
      else callback(null, first.address, first.family)
    })

export const openWebhookTransport = (options: {
  privateAddresses: PrivateAddresses
  timeoutMs: number
  connectionsPerOrigin: number
  resolve?: Resolve
}): WebhookTransport => {
  const { timeoutMs } = options
  const isGuarded = options.privateAddresses === 'refuse'
  const agent = new Agent({
    connections: options.connectionsPerOrigin,
    pipelining: 1,
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    maxHeaderSize: HEADER_BYTES_MAX,
    headersTimeout: timeoutMs + TIMEOUT_SLACK_MS,
    bodyTimeout: timeoutMs + TIMEOUT_SLACK_MS,
    connect: { timeout: timeoutMs, lookup: publicLookup(options.resolve ?? lookup, isGuarded) },
  })
  return {
    async post({ url, headers, body }) {
      const { origin, hostname, pathname, search } = new URL(url)
      if (isGuarded && isPrivateHost(hostname)) return { kind: 'unanswered', code: 'PRIVATE_ADDRESS' }
      const deadline = AbortSignal.timeout(timeoutMs)
      try {
        const answer = await agent.request({
          origin,
          path: `${pathname}${search}`,
          method: 'POST',
          headers,
          body,
          signal: deadline,
        })
        let length = 0
        for await (const chunk of answer.body) {
          length += (chunk as Buffer).length
          if (length > ANSWER_BYTES_MAX) break
        }
        const retryAfter = answer.headers['retry-after']
        return {
          kind: 'answered',
          status: answer.statusCode,
          retryAfterMs: typeof retryAfter === 'string' ? parseRetryAfter(retryAfter, Date.now()) : null,
        }
      } catch (error) {
        return { kind: 'unanswered', code: deadline.aborted ? 'TIMEOUT' : errorCode(error) }
      }
    },
    close: () => agent.destroy(),
  }
}

const CODE_LENGTH_MAX = 100

const errorCode = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' && /^\w+$/.test(code) ? code.slice(0, CODE_LENGTH_MAX) : 'UNKNOWN'
}
