import { randomUUID } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { AppError, type ErrorCode } from '../domain/errors.ts'
import { pathOf } from './errors.ts'
import { LAST_ANSWER_MS } from './limits.ts'
import { PROBLEM_MEDIA_TYPE, PROBLEMS, toProblem } from './problems.ts'
import { requestIdOf } from './request-ids.ts'
import { SECURITY_HEADERS } from './security-headers.ts'

/**
 * Problems that Node finds before a request exists for Fastify: broken HTTP, too large headers, timeouts, expectations.
 * They get the same body as all others, and the connection ends, as its framing is lost.
 */

const FAULTS: Readonly<Record<string, { code: ErrorCode; detail: string }>> = {
  HPE_HEADER_OVERFLOW: { code: 'headers-too-large', detail: 'The request line and headers exceed 16 KiB' },
  ERR_HTTP_REQUEST_TIMEOUT: { code: 'request-timeout', detail: 'The request did not arrive in time' },
}
const MALFORMED = { code: 'malformed-request', detail: 'The request is not valid HTTP/1.1' } as const

const SECURITY_LINES = Object.entries(SECURITY_HEADERS)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join('')

/** The reply in progress on a socket: an error must not be written into the middle of it. */
const replies = new WeakMap<Socket, ServerResponse>()

export const makeClientErrorHandler =
  (publicUrl: string | null) =>
  (error: NodeJS.ErrnoException, socket: Socket): void => {
    const reply = replies.get(socket)
    const inReply = reply?.headersSent === true && !reply.writableFinished
    if (error.code === 'ECONNRESET' || !socket.writable || inReply) {
      socket.destroy()
      return
    }
    const fault = FAULTS[error.code ?? ''] ?? MALFORMED
    const requestId = randomUUID()
    const body = Buffer.from(
      JSON.stringify(toProblem(new AppError(fault.code, fault.detail), { publicUrl, instance: '', requestId })),
    )
    const { status, title } = PROBLEMS[fault.code]
    // nothing more is read: what would still come must not be served after this answer. Whoever does not close is cut: Node
    // tells of a slow client once, and the server's half of a connection may be closed for ever while the client's is not
    socket.pause()
    const cut = setTimeout(() => socket.destroy(), LAST_ANSWER_MS)
    socket.once('close', () => clearTimeout(cut))
    socket.end(
      `HTTP/1.1 ${status} ${title}\r\ncontent-type: ${PROBLEM_MEDIA_TYPE}\r\ncontent-length: ${body.length}\r\n` +
        `x-request-id: ${requestId}\r\ncache-control: no-store\r\n${SECURITY_LINES}connection: close\r\n\r\n${body}`,
    )
  }

const refuseExpectation =
  (publicUrl: string | null) =>
  (request: IncomingMessage, response: ServerResponse): void => {
    const error = new AppError('expectation-failed', 'The Expect header asks for something this service does not do')
    const place = { publicUrl, instance: pathOf(request.url ?? ''), requestId: requestIdOf(request) }
    response
      .writeHead(PROBLEMS[error.code].status, {
        'content-type': PROBLEM_MEDIA_TYPE,
        'x-request-id': place.requestId,
        'cache-control': 'no-store',
        ...SECURITY_HEADERS,
        connection: 'close',
      })
      .end(JSON.stringify(toProblem(error, place)))
  }

export const watchSockets = (server: Server, publicUrl: string | null): void => {
  server.on('request', (request: IncomingMessage, response: ServerResponse) => replies.set(request.socket, response))
  server.on('checkExpectation', refuseExpectation(publicUrl))
}
