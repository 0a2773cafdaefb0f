/**
 * The HTTP API as functions. An answer that is a problem throws `Refusal`; a service that is not reached, or not now, is asked
 * again a few times where the request may be repeated, and then throws `CommandFailure` with `EXIT.unavailable`.
 */
import type { Readable } from 'node:stream'
import { Agent, type Dispatcher } from 'undici'
import type { ClientSettings } from '../config.ts'
import type {
  Case,
  HealthReport,
  Incident,
  Operation,
  PageOf,
  Preflight,
  Problem,
  Resolution,
  ResolvedIncident,
  Scope,
  Submission,
} from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { printable } from './text.ts'

const CONNECT_TIMEOUT_MS = 10_000
/** Longer than any `Prefer: wait`. */
const ANSWER_TIMEOUT_MS = 90_000
/** Of an upload, after its last byte: a million rows are being checked and stored. */
const UPLOAD_ANSWER_TIMEOUT_MS = 10 * 60_000
const TRIES_MAX = 5
const RETRY_BASE_MS = 500
const RETRY_MAX_MS = 15_000
const PAGE_LIMIT = 500
const FOREIGN_TEXT_MAX = 200

/** The service said no, in a problem of its own. */
export class Refusal extends Error {
  readonly problem: Problem
  constructor(problem: Problem) {
    super(`${problem.title} (${problem.status} ${problem.code})`)
    this.problem = problem
  }
}

export interface Answer<Body> {
  body: Body
  etag: string | null
  /** The idempotency key was used before: this is what it named then. */
  replayed: boolean
}

interface Ask {
  method?: 'GET' | 'POST'
  body?: unknown
  upload?: { contentType: string; bytes: () => Readable }
  headers?: Record<string, string>
  /** Whether asking twice is the same as asking once; GET always is. */
  repeatable?: boolean
  signal?: AbortSignal | undefined
}

export interface ApiClient {
  submit(body: Submission, idempotencyKey: string, signal?: AbortSignal): Promise<Answer<Operation>>
  /** Not repeated by itself: whoever calls has to open the bytes anew. */
  upload(
    id: string,
    upload: { contentType: string; bytes: () => Readable; keyColumn: string | null; idempotencyKey: string },
    signal?: AbortSignal,
  ): Promise<{ added: number; total: number }>
  start(id: string, signal?: AbortSignal): Promise<Operation>
  /** Null: unchanged since `seen`. */
  getOperation(
    id: string,
    wait?: { seen: string; seconds: number } | null,
    signal?: AbortSignal,
  ): Promise<Answer<Operation> | null>
  cancel(id: string, reason: string | null, signal?: AbortSignal): Promise<Operation>
  preflight(id: string, scope: Scope | null): Promise<Preflight>
  replay(id: string, request: { preflight_id: string; reason: string; force?: string[] }): Promise<Answer<Operation>>
  approve(id: string, decision: { decision: 'approve' | 'reject'; note?: string }): Promise<Operation>
  cases(filters: Record<string, string>, rowsMax: number, signal?: AbortSignal): Promise<Case[]>
  getCase(id: string): Promise<Case>
  lookupCase(id: string): Promise<Case>
  resolveCase(id: string, resolution: Resolution): Promise<Case>
  incidents(filters: Record<string, string>, rowsMax: number): Promise<Incident[]>
  getIncident(id: string): Promise<Incident>
  resolveIncident(id: string, request: { reason: string; fixed_in?: string }): Promise<ResolvedIncident>
  healthReport(): Promise<HealthReport>
  close(): Promise<void>
}

const at = (id: string, rest = ''): string => `/operations/${encodeURIComponent(id)}${rest}`

/** `principal`: who asks, where the service runs without keys. */
export const openApiClient = ({ url, key }: ClientSettings, principal: string | null): ApiClient => {
  const agent = new Agent({ connect: { timeout: CONNECT_TIMEOUT_MS } })
  const ask = <Body>(path: string, options: Ask = {}) => send<Body>({ agent, url, key, principal }, path, options)
  const get = async <Body>(path: string, signal?: AbortSignal): Promise<Body> =>
    (await ask<Body>(path, { signal })).body
  const post = async <Body>(path: string, body: unknown, repeatable: boolean): Promise<Body> =>
    (await ask<Body>(path, { method: 'POST', body, repeatable })).body
  const list = async <Row>(path: string, filters: Record<string, string>, rowsMax: number, signal?: AbortSignal) => {
    const rows: Row[] = []
    let cursor: string | undefined
    do {
      const limit = String(Math.min(PAGE_LIMIT, rowsMax - rows.length))
      const query = new URLSearchParams({ ...filters, limit, ...(cursor === undefined ? {} : { cursor }) })
      const page = await get<PageOf<Row>>(`${path}?${query}`, signal)
      rows.push(...page.items)
      cursor = page.next_cursor
    } while (cursor !== undefined && rows.length < rowsMax)
    return rows
  }

  return {
    submit: (body, idempotencyKey, signal) =>
      ask<Operation>('/operations', {
        method: 'POST',
        body,
        headers: { 'idempotency-key': idempotencyKey },
        repeatable: true,
        signal,
      }),
    async upload(id, { contentType, bytes, keyColumn, idempotencyKey }, signal) {
      const query = keyColumn === null ? '' : `?${new URLSearchParams({ key: keyColumn })}`
      const headers = { 'idempotency-key': idempotencyKey }
      const upload = { contentType, bytes }
      return (
        await ask<{ added: number; total: number }>(at(id, `/items${query}`), {
          method: 'POST',
          upload,
          headers,
          signal,
        })
      ).body
    },
    start: async (id, signal) =>
      (await ask<Operation>(at(id, '/start'), { method: 'POST', body: {}, repeatable: true, signal })).body,
    async getOperation(id, wait, signal) {
      const headers: Record<string, string> = wait
        ? { 'if-none-match': wait.seen, ...(wait.seconds > 0 ? { prefer: `wait=${wait.seconds}` } : {}) }
        : {}
      const answer = await ask<Operation | undefined>(at(id), { headers, signal })
      return answer.body === undefined ? null : { ...answer, body: answer.body }
    },
    cancel: async (id, reason, signal) =>
      (await ask<Operation>(at(id, '/cancel'), { method: 'POST', body: { reason }, repeatable: true, signal })).body,
    preflight: (id, scope) => post(at(id, '/replay-preflight'), { scope }, true),
    // one preflight is one replay, however often it is asked for
    replay: (id, body) => ask<Operation>(at(id, '/replay'), { method: 'POST', body, repeatable: true }),
    approve: (id, decision) => post(at(id, '/approval'), decision, false),
    cases: (filters, rowsMax, signal) => list('/reconciliation', filters, rowsMax, signal),
    getCase: (id) => get(`/reconciliation/${encodeURIComponent(id)}`),
    lookupCase: (id) => post(`/reconciliation/${encodeURIComponent(id)}/lookup`, {}, false),
    resolveCase: (id, resolution) => post(`/reconciliation/${encodeURIComponent(id)}/resolve`, resolution, false),
    incidents: (filters, rowsMax) => list('/incidents', filters, rowsMax),
    getIncident: (id) => get(`/incidents/${encodeURIComponent(id)}`),
    resolveIncident: (id, request) => post(`/incidents/${encodeURIComponent(id)}/resolve`, request, false),
    healthReport: () => get('/health-report'),
    close: () => agent.close(),
  }
}

interface Service {
  agent: Agent
  url: string
  key: string | null
  principal: string | null
}

const send = async <Body>(service: Service, path: string, options: Ask): Promise<Answer<Body>> => {
  const repeatable = options.repeatable ?? options.method === undefined
  for (let tries = 1; ; tries++) {
    const outcome = await tryOnce<Body>(service, path, options)
    if ('answer' in outcome) return outcome.answer
    // what was refused before it was read can always be repeated, but for bytes that are used up
    const mayRepeat = (repeatable || outcome.untouched) && options.upload === undefined
    if (!mayRepeat || tries >= TRIES_MAX) throw outcome.failure
    const backoffMs = RETRY_BASE_MS * 2 ** (tries - 1) * (0.5 + Math.random())
    await pause(Math.min(RETRY_MAX_MS, Math.max(backoffMs, outcome.retryAfterMs)), options.signal)
  }
}

type Outcome<Body> = { answer: Answer<Body> } | { failure: Error; retryAfterMs: number; untouched: boolean }

/** @throws Refusal for what trying again cannot help; whatever the signal or the bytes of an upload throw */
const tryOnce = async <Body>(service: Service, path: string, options: Ask): Promise<Outcome<Body>> => {
  const { method = 'GET', upload, signal } = options
  const bytes = upload?.bytes()
  let bytesError: unknown
  bytes?.once('error', (error) => {
    bytesError = error
  })
  let response: Dispatcher.ResponseData
  let text: string
  try {
    const { origin, pathname } = new URL(service.url)
    response = await service.agent.request({
      origin,
      path: `${pathname === '/' ? '' : pathname}${path}`,
      method,
      headers: headersOf(service, options),
      body: bytes ?? (method === 'GET' ? null : JSON.stringify(options.body)),
      headersTimeout: upload ? UPLOAD_ANSWER_TIMEOUT_MS : ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
      ...(signal && { signal }),
    })
    text = await response.body.text()
  } catch (error) {
    if (signal?.aborted) throw error
    if (bytesError !== undefined) throw bytesError
    return { failure: notReached(service.url, error), retryAfterMs: 0, untouched: wasRefused(error) }
  }
  const { statusCode: status, headers } = response
  if (status < 300 || status === 304) {
    const etag = typeof headers.etag === 'string' ? headers.etag : null
    const body = (status === 304 ? undefined : JSON.parse(text)) as Body
    return { answer: { body, etag, replayed: headers['idempotent-replayed'] === 'true' } }
  }
  const failure = failureOf(service.url, status, String(headers['content-type'] ?? ''), text)
  if (status !== 429 && status !== 503) throw failure
  // behind a 503 the commit may have happened; a 429 was turned away at the door
  return { failure, retryAfterMs: Number(headers['retry-after'] ?? 0) * 1000 || 0, untouched: status === 429 }
}

const headersOf = ({ key, principal }: Service, { method, upload, headers }: Ask): Record<string, string> => ({
  accept: 'application/json',
  ...(method === 'POST' && { 'content-type': upload?.contentType ?? 'application/json' }),
  ...(key !== null && { authorization: `Bearer ${key}` }),
  // header bytes are latin1 for Node; names are sent as UTF-8
  ...(principal !== null && { 'x-principal': Buffer.from(principal, 'utf8').toString('latin1') }),
  ...headers,
})

const failureOf = (url: string, status: number, type: string, text: string): Error => {
  if (type.startsWith('application/problem+json')) {
    const problem = JSON.parse(text) as Problem
    // relative where the service does not know its public URL
    const page = URL.canParse(problem.type) ? problem.type : `${url}${problem.type}`
    return new Refusal({ ...problem, type: page })
  }
  return new CommandFailure(
    `${url} answered ${status} with no problem document: ${printable(text.slice(0, FOREIGN_TEXT_MAX))}`,
    status >= 500 || status === 429 ? EXIT.unavailable : EXIT.refused,
    { hints: ['Is this the URL of an opledger, and of nothing in front of it? Set --url or OPLEDGER_URL.'] },
  )
}

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : String(error)

/** No byte of the request was sent. */
const wasRefused = (error: unknown): boolean =>
  ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT'].includes(codeOf(error))

const notReached = (url: string, cause: unknown): CommandFailure =>
  new CommandFailure(`${url} cannot be reached (${codeOf(cause)})`, EXIT.unavailable, {
    hints: ['Does the service run there? Set --url or OPLEDGER_URL to where it does.'],
    cause,
  })

/** @throws the reason of `signal` when it is aborted */
export const pause = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    if (signal?.aborted) {
      reject(signal.reason)
      return
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, ms)
    signal?.addEventListener('abort', onAbort, { once: true })
  })
