import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { MAX_REQUEST_ID_BYTES } from './limits.ts'

const VISIBLE_ASCII = /^[\x21-\x7e]+$/

/** The caller's `X-Request-Id` where it can be repeated safely in headers and logs, else a new one. */
export const requestIdOf = (request: Pick<IncomingMessage, 'headers'>): string => {
  const sent = request.headers['x-request-id']
  const usable = typeof sent === 'string' && sent.length <= MAX_REQUEST_ID_BYTES && VISIBLE_ASCII.test(sent)
  return usable ? sent : randomUUID()
}
