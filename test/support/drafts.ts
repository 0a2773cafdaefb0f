/** Drafts over HTTP: a real server on a real database, and the rows that only the database shows. */
import { once } from 'node:events'
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import pino from 'pino'
import { parseId } from '../../src/domain/ids.ts'
import type { OperationType } from '../../src/domain/operation-type.ts'
import { buildServer } from '../../src/http/server.ts'
import { openTestService, type TestService } from './service.ts'

export const NDJSON = { 'content-type': 'application/x-ndjson' }
export const CSV = { 'content-type': 'text/csv' }

export interface Answer {
  status: number
  headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted on member by member
  body: any
}

export interface DraftApi {
  service: TestService
  url: string
  call(method: string, path: string, body?: string, headers?: Record<string, string>): Promise<Answer>
  /** The id of a new draft. */
  draft(body?: Record<string, unknown>): Promise<string>
  upload(id: string, body: string, headers?: Record<string, string>, query?: string): Promise<Answer>
  /** An upload whose body the test writes piece by piece. */
  open(id: string, headers?: Record<string, string>): { request: ClientRequest; answer: Promise<Answer> }
  /** Rows of the operation in the table, also those that do not exist for anybody. */
  rows(id: string): Promise<number>
  /** States of the uploads that are not done. */
  openUploads(id: string): Promise<string[]>
  close(): Promise<void>
}

export const uuidOf = (id: string): string => parseId('op', id) ?? ''

export const line = (key: string, input: unknown = { role: 'a' }): string => `${JSON.stringify({ key, input })}\n`

export const lines = (count: number, prefix = 'k'): string =>
  Array.from({ length: count }, (_, index) => line(`${prefix}${index}`)).join('')

const toAnswer = async (response: IncomingMessage): Promise<Answer> => {
  let text = ''
  for await (const chunk of response) text += String(chunk)
  const headers = new Headers(Object.entries(response.headers).map(([name, value]) => [name, String(value)]))
  return { status: response.statusCode ?? 0, headers, body: text === '' ? null : JSON.parse(text) }
}

export const openDraftApi = async (types: readonly OperationType[]): Promise<DraftApi> => {
  const service = await openTestService({ types })
  const app = await buildServer({
    services: service.services,
    config: { auth: 'off', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
  const { database } = service

  const api: DraftApi = {
    service,
    url,
    async call(method, path, body, headers = {}) {
      const response = await fetch(url + path, { method, headers, ...(body === undefined ? {} : { body }) })
      const text = await response.text()
      return { status: response.status, headers: response.headers, body: text === '' ? null : JSON.parse(text) }
    },
    async draft(body = {}) {
      const { body: operation } = await api.call(
        'POST',
        '/operations',
        JSON.stringify({ type: types[0]?.name, draft: true, ...body }),
        { 'content-type': 'application/json' },
      )
      return operation.id
    },
    upload: (id, body, headers = NDJSON, query = '') =>
      api.call('POST', `/operations/${id}/items${query}`, body, headers),
    open(id, headers = NDJSON) {
      const request = httpRequest(`${url}/operations/${id}/items`, { method: 'POST', headers })
      const answer = once(request, 'response').then(([response]) => toAnswer(response as IncomingMessage))
      answer.catch(() => {})
      return { request, answer }
    },
    async rows(id) {
      const [row] = await database.query(
        ({ sql }) => sql<{ n: number }>`
          select count(*)::int as n from operation_items where operation_id = ${uuidOf(id)}::uuid`,
      )
      return row?.n ?? -1
    },
    async openUploads(id) {
      const rows = await database.query(
        ({ sql }) => sql<{ state: string }>`
          select state from operation_uploads where operation_id = ${uuidOf(id)}::uuid and state <> 'done'`,
      )
      return rows.map(({ state }) => state)
    },
    async close() {
      await app.close()
      await service.close()
    },
  }
  return api
}
