/** What the demo asks of the API, over HTTP like any other client; what it was told is kept for the account. */
import type { CallFacts, CallKind, History } from '../../test/invariants/history.ts'

export interface Operation {
  id: string
  type: string
  status: string
  counts: Record<'total' | 'applied' | 'skipped' | 'failed' | 'uncertain' | 'unprocessed' | 'in_flight', number>
  failures: Record<string, number>
  progress: { ratio: number | null; rate_per_second: number | null; eta: string | null }
  cancel: { acknowledged_at: string | null; applied_after_request: number }
  created_at: string
  started_at: string | null
  completed_at: string | null
}

export interface Item {
  key: string
  state: 'applied' | 'skipped' | 'failed' | 'uncertain' | 'unprocessed'
  failure_class: string | null
  reason_code: string | null
  effect_key: string
}

export interface Case {
  id: string
  operation_id: string
  item_key: string
  effect_key: string
  status: 'open' | 'resolved'
  cause: string
  resolution: { resolution: string; source: string } | null
  lookups: { count: number; last_answer: string | null }
}

interface Page<Row> {
  items: Row[]
  next_cursor?: string
}

const FINAL = ['succeeded', 'partially_succeeded', 'failed', 'cancelled', 'completed_after_cancel']
export const isFinal = ({ status }: Operation): boolean => FINAL.includes(status)

export interface Client {
  submit(
    type: string,
    items: readonly { key: string; input: unknown }[],
    options: { key: string; reason: string },
  ): Promise<Operation>
  /** A draft takes its items as a stream, a million of them if need be; `start` closes it. */
  draft(type: string, options: { key: string; reason: string }): Promise<Operation>
  upload(id: string, rows: ReadableStream<Uint8Array>): Promise<{ added: number; total: number }>
  start(id: string): Promise<Operation>
  get(id: string): Promise<Operation>
  cancel(id: string, reason: string): Promise<Operation>
  items(id: string): Promise<Item[]>
  /** All of them, unless `status` is given. */
  cases(operationId: string, status?: 'open'): Promise<Case[]>
  /** False when the case was closed by other evidence in the meantime. */
  resolve(
    caseId: string,
    evidence: { resolution: 'applied' | 'not_applied'; evidence_ref: string; retry?: boolean },
  ): Promise<boolean>
}

export const createClient = (url: string, history: History): Client => {
  const ask = async (path: string, init: RequestInit = {}): Promise<Response> => {
    const response = await fetch(`${url}${path}`, init)
    if (response.ok || response.status === 409) return response
    throw new Error(`${init.method ?? 'GET'} ${path} answered ${response.status}: ${await response.text()}`)
  }
  const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    ask(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
  const json = async <Body>(response: Promise<Response>): Promise<Body> => (await (await response).json()) as Body

  const told = async (kind: CallKind, facts: CallFacts, call: () => Promise<Response>): Promise<Operation> => {
    const { body } = await history.record(kind, facts, async () => {
      const response = await call()
      const replayed = response.headers.get('idempotent-replayed') === 'true'
      return { status: response.status, replayed, body: (await response.json()) as Operation }
    })
    return body
  }

  return {
    submit: (type, items, { key, reason }) =>
      told('submit', { key, body: key, items: items.length }, () =>
        post('/operations', { type, items, reason }, { 'idempotency-key': key }),
      ),
    draft: (type, { key, reason }) =>
      told('submit', { key, body: key }, () =>
        post('/operations', { type, draft: true, reason }, { 'idempotency-key': key }),
      ),
    upload: (id, rows) =>
      json(
        ask(`/operations/${id}/items`, {
          method: 'POST',
          headers: { 'content-type': 'application/x-ndjson' },
          body: rows,
          duplex: 'half', // fetch wants this said for a body that is a stream
        } as RequestInit),
      ),
    start: (id) => told('start', { operationId: id }, () => post(`/operations/${id}/start`, {})),
    get: (id) => told('get', { operationId: id }, () => ask(`/operations/${id}`)),
    cancel: (id, reason) => told('cancel', { operationId: id }, () => post(`/operations/${id}/cancel`, { reason })),
    async items(id) {
      const response = await ask(`/operations/${id}/items`, { headers: { accept: 'application/x-ndjson' } })
      return (await response.text())
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    },
    async cases(operationId, status) {
      const filter = status === undefined ? '' : `&status=${status}`
      const found: Case[] = []
      let cursor = ''
      do {
        const page: Page<Case> = await json(
          ask(`/reconciliation?operation_id=${operationId}&limit=500${filter}${cursor}`),
        )
        found.push(...page.items)
        cursor = page.next_cursor === undefined ? '' : `&cursor=${encodeURIComponent(page.next_cursor)}`
      } while (cursor !== '')
      return found
    },
    async resolve(caseId, evidence) {
      const response = await post(`/reconciliation/${caseId}/resolve`, evidence)
      await response.arrayBuffer()
      return response.status === 200
    },
  }
}
