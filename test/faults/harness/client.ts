/**
 * A client of the service as careful ones are written: it repeats what had no answer under the same idempotency key, and
 * takes nothing for granted. Every call is told to `record`, answered or not: the client history.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'

export interface Answer<Body = Record<string, unknown>> {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: Body
}

/** What a call was about; `kind` is the noun of the route. */
export interface CallFacts {
  kind: 'submit' | 'get' | 'cancel' | 'pause' | 'resume' | 'replay' | 'preflight' | 'resolve' | 'start' | 'other'
  /** `op_…`; null where it is not known yet. */
  operationId: string | null
  idempotencyKey: string | null
  /** What was asked for. */
  body: unknown
}

/** Runs the call and writes down when it began, when it was answered, and what the answer was. */
export type Recorder = (facts: CallFacts, call: () => Promise<Answer>) => Promise<Answer>

export interface Operation {
  id: string
  type: string
  status: string
  version: number
  /** Why the service stopped it; null where nobody did, or a client. */
  error: { code: string; detail: string } | null
  counts: Record<'total' | 'applied' | 'skipped' | 'failed' | 'uncertain' | 'unprocessed' | 'in_flight', number>
}
export interface Case {
  id: string
  operation_id: string
  item_key: string
  effect_key: string
  cause: string
}
export interface ItemRow {
  key: string
  state: string
}
export interface EntryRow {
  item_key: string
  state: string | null
  source: string
  reason_code: string | null
}

export interface Submit {
  type: string
  key: string
  items: readonly { key: string; input?: unknown }[]
  more?: Record<string, unknown>
}

export class NoAnswer extends Error {}

/** Longer than any answer of the api may take (its statements end after 15 s). */
const ANSWER_MS = 20_000
const RETRY_MS = 100
const RETRIES_MS = 60_000
const PAGE = 500
const FINAL = ['succeeded', 'partially_succeeded', 'failed', 'cancelled', 'completed_after_cancel']

export const isFinal = ({ status }: Pick<Operation, 'status'>): boolean => FINAL.includes(status)

export const openClient = (urls: () => readonly string[], record: Recorder) => {
  const agent = new Agent({ connections: 256, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS })
  let turn = 0

  /** One try at one api. Throws NoAnswer when the connection gave none. */
  const once = async (method: 'GET' | 'POST', path: string, facts: CallFacts): Promise<Answer> => {
    const all = urls()
    const url = all[turn++ % all.length]
    return record(facts, async () => {
      try {
        const response = await request(`${url}${path}`, {
          dispatcher: agent,
          method,
          headers: {
            ...(facts.body === undefined ? {} : { 'content-type': 'application/json' }),
            ...(facts.idempotencyKey === null ? {} : { 'idempotency-key': facts.idempotencyKey }),
          },
          body: facts.body === undefined ? null : JSON.stringify(facts.body),
        })
        const text = await response.body.text()
        return {
          status: response.statusCode,
          headers: response.headers,
          body: text === '' ? {} : JSON.parse(text),
        }
      } catch (error) {
        throw new NoAnswer(`${method} ${path} had no answer`, { cause: error })
      }
    })
  }

  /** Repeats while there is no answer, or one that says "later" (429, 503). */
  const patiently = async (method: 'GET' | 'POST', path: string, facts: CallFacts): Promise<Answer> => {
    const until = performance.now() + RETRIES_MS
    for (;;) {
      const answer = await once(method, path, facts).catch((error: unknown) => {
        if (!(error instanceof NoAnswer) || performance.now() > until) throw error
        return null
      })
      if (answer && answer.status !== 503 && answer.status !== 429) return answer
      if (performance.now() > until) throw new Error(`${method} ${path}: ${answer?.status} for ${RETRIES_MS / 1000} s`)
      await sleep(RETRY_MS)
    }
  }

  const facts = (kind: CallFacts['kind'], operationId: string | null, body?: unknown): CallFacts => ({
    kind,
    operationId,
    idempotencyKey: null,
    body,
  })
  const submission = ({ type, key, items, more }: Submit): CallFacts => ({
    ...facts('submit', null, { type, items, ...more }),
    idempotencyKey: key,
  })
  const expectOk = (answer: Answer, what: string): Answer => {
    if (answer.status >= 200 && answer.status < 300) return answer
    throw new Error(`${what} answered ${answer.status}: ${JSON.stringify(answer.body)}`)
  }

  const listAll = async <Row>(path: string, operationId: string | null): Promise<Row[]> => {
    const rows: Row[] = []
    for (let next: string | null = ''; next !== null; ) {
      const query: string = `${path}${path.includes('?') ? '&' : '?'}limit=${PAGE}${next === '' ? '' : `&cursor=${next}`}`
      const { body } = expectOk(await patiently('GET', query, facts('other', operationId)), query)
      rows.push(...(body.items as Row[]))
      next = (body.next_cursor as string | null | undefined) ?? null
    }
    return rows
  }

  return {
    /** One try; throws NoAnswer. */
    trySubmit: (submit: Submit): Promise<Answer> => once('POST', '/operations', submission(submit)),
    /** Repeats until it is accepted; the operation's id. */
    submit: async (submit: Submit): Promise<string> => {
      const answer = expectOk(await patiently('POST', '/operations', submission(submit)), 'POST /operations')
      return String(answer.body.id)
    },
    get: async (id: string): Promise<Operation> => {
      const answer = await patiently('GET', `/operations/${id}`, facts('get', id))
      return expectOk(answer, `GET ${id}`).body as unknown as Operation
    },
    /** One try; throws NoAnswer. */
    tryAct: (kind: 'cancel' | 'pause' | 'resume', id: string, reason = 'fault suite'): Promise<Answer> =>
      once('POST', `/operations/${id}/${kind}`, facts(kind, id, { reason })),
    /** Any status but "later". */
    act: (kind: 'cancel' | 'pause' | 'resume', id: string, reason = 'fault suite'): Promise<Answer> =>
      patiently('POST', `/operations/${id}/${kind}`, facts(kind, id, { reason })),
    resolve: (
      found: Pick<Case, 'id' | 'operation_id'>,
      body: { resolution: 'applied' | 'not_applied'; retry?: boolean; evidence_ref: string },
    ): Promise<Answer> =>
      patiently('POST', `/reconciliation/${found.id}/resolve`, facts('resolve', found.operation_id, body)),
    /** Any other route, patiently. */
    call: (method: 'GET' | 'POST', path: string, body?: unknown, operationId: string | null = null): Promise<Answer> =>
      patiently(method, path, facts('other', operationId, body)),
    /** Any other route, one try; throws NoAnswer. */
    tryCall: (
      method: 'GET' | 'POST',
      path: string,
      body?: unknown,
      idempotencyKey: string | null = null,
    ): Promise<Answer> => once(method, path, { ...facts('other', null, body), idempotencyKey }),
    openCases: (id?: string): Promise<Case[]> =>
      listAll<Case>(`/reconciliation?status=open${id === undefined ? '' : `&operation_id=${id}`}`, id ?? null),
    items: (id: string): Promise<ItemRow[]> => listAll<ItemRow>(`/operations/${id}/items`, id),
    ledger: (id: string): Promise<EntryRow[]> => listAll<EntryRow>(`/operations/${id}/ledger`, id),
    close: (): Promise<void> => agent.destroy(),
  }
}
export type Client = ReturnType<typeof openClient>
