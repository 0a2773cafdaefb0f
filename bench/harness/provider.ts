/**
 * The outside world: a plain HTTP server that answers every effect with 201 and an id, at once or after a delay. It is the same
 * for all sides of a ratio. Where asked to, it keeps when each effect was sent, as the sender says in `x-sent-at`, and when it
 * arrived, on the clock that all processes of a machine share.
 */
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { servePart } from './serve-part.ts'

export interface ProviderSettings {
  delayMs: number
  keeps: boolean
}

/** Of one effect. */
export interface Arrival {
  key: string
  /** Epoch ms, as the sender stamped it; null where it did not. */
  sentAt: number | null
  /** `process.hrtime`, in ms. */
  arrivedAt: number
}

await servePart<ProviderSettings>(async ({ delayMs, keeps }) => {
  let seen = 0
  let arrivals: Arrival[] = []
  let awaited: ((arrival: Arrival) => void) | null = null
  const server = http.createServer((request, response) => {
    const n = ++seen
    if (keeps) {
      const stamp = request.headers['x-sent-at']
      const arrival: Arrival = {
        key: String(request.headers['idempotency-key'] ?? ''),
        sentAt: stamp === undefined ? null : Number(stamp),
        arrivedAt: Number(process.hrtime.bigint()) / 1e6,
      }
      if (awaited === null) arrivals.push(arrival)
      else awaited(arrival)
      awaited = null
    }
    const answer = (): void => {
      const body = `{"id":"e${n}"}`
      response.writeHead(201, { 'content-type': 'application/json', 'content-length': body.length }).end(body)
    }
    request.resume()
    request.on('end', () => (delayMs > 0 ? setTimeout(answer, delayMs) : answer()))
  })
  server.keepAliveTimeout = 60_000
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    ready: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls: {
      /** What came since the last call. */
      take: () => {
        const taken = arrivals
        arrivals = []
        return taken
      },
      /** The next one, also where it has come already; nobody has to look for it, which would cost what is measured. */
      next: () =>
        arrivals.shift() ??
        new Promise<Arrival>((resolve) => {
          awaited = resolve
        }),
    },
    close: () => server.closeAllConnections(),
  }
})
