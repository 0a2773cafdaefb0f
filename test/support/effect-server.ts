/**
 * The outside world of our tests: a provider of "grants" that misbehaves on request, and the judge of what was really
 * done. Every request and every effect is appended to a log per effect key before anything is answered; with
 * `fsync` the log survives a kill of this process too, and a restart on the same file continues it.
 *
 *   POST /grants       header Idempotency-Key (percent-decoded) = effect key, body {mode?, delay_ms?, …}
 *   DELETE /grants/…   the same, with the key of a compensation: an effect that takes another one back
 *   GET  /grants/:key  200 {id} when applied, 404 when not; see `setLookup`
 *   GET  /_log         {key: entry}         POST /_lookup {"mode": "up" | "down" | "unknown"}
 *
 * As a process: node --import tsx test/support/effect-server.ts PORT [LOG_FILE]
 */
import fs from 'node:fs'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { pathToFileURL } from 'node:url'

const EFFECT_MODES = [
  'ok',
  'already',
  'reject',
  'conflict',
  'forbidden',
  'gone',
  'busy',
  'busy_once',
  'apply_then_hang',
  'apply_then_reset',
  'apply_once',
  'error_before_apply',
  'error_after_apply',
  'never_answer',
  'never_answer_once',
  'reset',
  'reset_once',
  'hang_then_duplicate',
  'trickle',
  'truncate',
  'redirect',
  'odd',
] as const
type EffectMode = (typeof EFFECT_MODES)[number]
type LookupMode = 'up' | 'down' | 'unknown'

interface EffectEntry {
  requests: number
  applied: number
  firstAt: number
  lastAt: number
  /** When each request arrived, and each effect was done: `Date.now()` here, in order. */
  arrivals: number[]
  appliedAt: number[]
}

export interface EffectServer {
  url: string
  entry(key: string): EffectEntry
  entries(): Record<string, EffectEntry>
  setLookup(mode: LookupMode): void
  /** The largest number of requests that were in flight at once. */
  inFlightMax(): number
  /** Resolves when the server has seen `count` requests in all. */
  requestsSeen(count: number): Promise<void>
  close(): Promise<void>
}

interface Options {
  port?: number
  logFile?: string
  /** Off by default: thousands of effects per second then cost nothing. */
  fsync?: boolean
  keepAliveTimeoutMs?: number
}

interface LogLine {
  at: number
  event: 'request' | 'applied'
  key: string
  mode: string
}

const TRICKLE_MS = 25

const newEntry = (at: number): EffectEntry => ({
  requests: 0,
  applied: 0,
  firstAt: at,
  lastAt: at,
  arrivals: [],
  appliedAt: [],
})

class EffectLog {
  private readonly byKey = new Map<string, EffectEntry>()
  private readonly file: number | null
  private readonly fsync: boolean
  total = 0

  constructor(logFile: string | undefined, fsync: boolean) {
    this.fsync = fsync
    if (logFile !== undefined && fs.existsSync(logFile)) {
      for (const line of fs.readFileSync(logFile, 'utf8').split('\n').filter(Boolean)) this.count(JSON.parse(line))
    }
    this.file = logFile === undefined ? null : fs.openSync(logFile, 'a')
  }

  write(line: LogLine): void {
    if (this.file !== null) {
      fs.writeSync(this.file, `${JSON.stringify(line)}\n`)
      if (this.fsync) fs.fsyncSync(this.file)
    }
    this.count(line)
  }

  entry(key: string): EffectEntry {
    return this.byKey.get(key) ?? newEntry(0)
  }

  entries(): Record<string, EffectEntry> {
    return Object.fromEntries(this.byKey)
  }

  close(): void {
    if (this.file !== null) fs.closeSync(this.file)
  }

  private count({ at, event, key }: LogLine): void {
    const entry = this.byKey.get(key) ?? newEntry(at)
    this.byKey.set(key, entry)
    entry.lastAt = at
    if (event === 'applied') {
      entry.applied += 1
      entry.appliedAt.push(at)
    } else {
      entry.requests += 1
      entry.arrivals.push(at)
      this.total += 1
    }
  }
}

/** The inverse of how the service writes a key into a header; a `%` that is no escape stands for itself. */
const decodeKey = (text: string): string =>
  text.replace(/(?:%[0-9A-Fa-f]{2})+/g, (escapes) => {
    try {
      return decodeURIComponent(escapes)
    } catch {
      return escapes
    }
  })

const answerJson = (response: http.ServerResponse, status: number, body: unknown): void => {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

const readBody = async (request: http.IncomingMessage): Promise<string> => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += chunk
  return text
}

interface Exchange {
  request: http.IncomingMessage
  response: http.ServerResponse
  /** Records the effect, then names it. */
  apply(): { id: string }
  key: string
  /** How often this key was requested, this request included. */
  requests: number
}

/** Byte by byte, without an end: the status is said, the body never completes. */
const trickle = (response: http.ServerResponse): void => {
  response.writeHead(201, { 'content-type': 'application/json' })
  const timer = setInterval(() => response.write(' '), TRICKLE_MS)
  response.on('close', () => clearInterval(timer))
}

const behave: Record<EffectMode, (exchange: Exchange) => void> = {
  ok: ({ response, apply }) => answerJson(response, 201, apply()),
  already: ({ response }) => answerJson(response, 208, {}),
  reject: ({ response }) => answerJson(response, 422, { code: 'NO_SUCH_USER' }),
  conflict: ({ response }) => answerJson(response, 409, {}),
  forbidden: ({ response }) => answerJson(response, 403, {}),
  gone: ({ response }) => answerJson(response, 404, {}),
  busy: ({ response }) => answerJson(response, 503, {}),
  busy_once: (exchange) => (exchange.requests === 1 ? behave.busy(exchange) : behave.ok(exchange)),
  // a provider that deduplicates: a repeat is answered as the first request was
  apply_once: ({ response, apply, key, requests }) =>
    answerJson(response, 201, requests === 1 ? apply() : { id: `grant-${key}` }),
  apply_then_hang: ({ apply }) => void apply(),
  apply_then_reset: ({ request, apply }) => {
    apply()
    request.socket.resetAndDestroy()
  },
  error_before_apply: ({ response }) => answerJson(response, 500, { message: 'bad \u0000 text \ud800' }),
  error_after_apply: ({ response, apply }) => {
    apply()
    answerJson(response, 500, {})
  },
  never_answer: () => {},
  never_answer_once: (exchange) => (exchange.requests === 1 ? behave.never_answer(exchange) : behave.ok(exchange)),
  reset: ({ request }) => void request.socket.resetAndDestroy(),
  reset_once: (exchange) => (exchange.requests === 1 ? behave.reset(exchange) : behave.ok(exchange)),
  // The first request settles without an answer, and a repeat is told that it was consumed.
  hang_then_duplicate: (exchange) =>
    exchange.requests === 1 ? behave.apply_then_hang(exchange) : behave.conflict(exchange),
  trickle: ({ response, apply }) => {
    apply()
    trickle(response)
  },
  truncate: ({ response, request, apply }) => {
    apply()
    response.writeHead(201, { 'content-length': '1000' })
    response.write('{"id":', () => request.socket.destroy())
  },
  redirect: ({ response }) => void response.writeHead(307, { location: '/elsewhere' }).end(),
  odd: ({ response, apply }) => answerJson(response, 299, apply()),
}

export const startEffectServer = async (options: Options = {}): Promise<EffectServer> => {
  const log = new EffectLog(options.logFile, options.fsync === true)
  const waiters = new Set<{ count: number; resolve: () => void }>()
  let lookup: LookupMode = 'up'
  let inFlight = 0
  let inFlightMax = 0

  const send = (request: http.IncomingMessage, response: http.ServerResponse, text: string, at: number): void => {
    const key = decodeKey(String(request.headers['idempotency-key'] ?? ''))
    const body: { mode?: string; delay_ms?: number } = text === '' ? {} : JSON.parse(text)
    const mode = EFFECT_MODES.find((known) => known === body.mode) ?? 'ok'
    log.write({ at, event: 'request', key, mode })
    inFlight += 1
    inFlightMax = Math.max(inFlightMax, inFlight)
    response.on('close', () => {
      inFlight -= 1
    })
    const { requests } = log.entry(key)
    const apply = (): { id: string } => {
      log.write({ at: Date.now(), event: 'applied', key, mode })
      return { id: `grant-${key}` }
    }
    const act = (): void => behave[mode]({ request, response, apply, key, requests })
    if (body.delay_ms) setTimeout(act, body.delay_ms)
    else act()
    for (const waiter of waiters) if (log.total >= waiter.count) waiter.resolve()
  }

  const find = (key: string): [status: number, body: unknown] => {
    if (lookup === 'down') return [503, {}]
    if (lookup === 'unknown') return [202, { state: 'processing' }]
    return log.entry(key).applied > 0 ? [200, { id: `grant-${key}` }] : [404, {}]
  }

  const route = (request: http.IncomingMessage, response: http.ServerResponse, text: string, at: number): void => {
    const { pathname } = new URL(request.url ?? '/', 'http://effects')
    if (pathname === '/_log') {
      answerJson(response, 200, log.entries())
    } else if (pathname === '/_lookup') {
      lookup = JSON.parse(text).mode
      answerJson(response, 200, { mode: lookup })
    } else if (!pathname.startsWith('/grants')) {
      answerJson(response, 404, { code: 'NO_SUCH_ROUTE' })
    } else if (request.method === 'GET') {
      answerJson(response, ...find(decodeURIComponent(pathname.slice('/grants/'.length))))
    } else {
      send(request, response, text, at)
    }
  }

  const server = http.createServer((request, response) => {
    const at = Date.now()
    // A client that goes away in the middle of its request did nothing here.
    readBody(request)
      .then((text) => route(request, response, text, at))
      .catch(() => response.destroy())
  })
  // Longer than any test: an idle socket closed under a POST makes it rightly uncertain, and the test flaky.
  server.keepAliveTimeout = options.keepAliveTimeoutMs ?? 60_000
  await new Promise<void>((resolve) => server.listen(options.port ?? 0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    entry: (key) => log.entry(key),
    entries: () => log.entries(),
    setLookup: (mode) => {
      lookup = mode
    },
    inFlightMax: () => inFlightMax,
    requestsSeen: (count) =>
      new Promise((resolve) => {
        if (log.total >= count) resolve()
        else waiters.add({ count, resolve })
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          log.close()
          resolve()
        })
        server.closeAllConnections()
      }),
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [, , port = '0', logFile] = process.argv
  const server = await startEffectServer({
    port: Number(port),
    fsync: true,
    ...(logFile === undefined ? {} : { logFile }),
  })
  process.stdout.write(`effect server on ${server.url}\n`)
}
