/** Bodies that come slowly: uploads may, others may not. The clock is the test's own. */
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { LAST_ANSWER_MS, REQUEST_TIMEOUT_MS, UPLOAD_PATIENCE_MS } from '../../src/http/limits.ts'
import { untilClosed } from '../support/socket-close.ts'
import { type Edge, openEdge } from './fake-services.ts'

let edge: Edge
let socket: Socket
/** The server's end of it. */
let served: Promise<Socket>
beforeEach(async () => {
  edge = await openEdge()
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  served = new Promise((resolve) => edge.app.server.once('connection', resolve))
  // a client that never closes its side, whatever it is told
  socket = connect({ port: (edge.app.server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true })
  socket.on('error', () => {}) // it is cut
})
afterEach(async () => {
  vi.advanceTimersByTime(LAST_ANSWER_MS) // nobody reads a connection that was told off
  vi.useRealTimers()
  socket.destroy()
  await edge.app.close()
})

const send = (path: string, contentType: string, body: string) =>
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: ${contentType}\r\ncontent-length: 100\r\n\r\n${body}`,
  )
const untilTimers = async (count: number) => {
  while (vi.getTimerCount() !== count) await new Promise((resolve) => setImmediate(resolve))
}

it('ends a request whose body does not arrive in time', async () => {
  send('/operations', 'application/json', '{"type":')
  await untilTimers(1)
  vi.advanceTimersByTime(REQUEST_TIMEOUT_MS)
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(String(answer)).toMatch(/^HTTP\/1\.1 408 [\s\S]*"code":"request-timeout"/)
})

const SLOW = Object.assign(new Error('too slow'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
it.each<[string, () => void]>([
  // Node looks for them at intervals only, so the event is raised by hand
  ['headers', () => void served.then((end) => edge.app.server.emit('clientError', SLOW, end))],
  ['body', () => void send('/operations', 'application/json', '{"type":')],
  ['beginning, which is rubbish,', () => void socket.write('rubbish\r\n\r\n')],
])('cuts a client that sends its %s and never closes', async (_what, begin) => {
  begin()
  const end = await served
  const closed = untilClosed(end)
  await untilTimers(1)
  if (end.readable && !end.writableEnded) vi.advanceTimersByTime(REQUEST_TIMEOUT_MS)
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(String(answer)).toMatch(/^HTTP\/1\.1 4\d\d [\s\S]*connection: close/)
  socket.write('x') // and goes on
  expect(end.destroyed).toBe(false)
  vi.advanceTimersByTime(LAST_ANSWER_MS)
  await closed
  await untilTimers(0)
})

it('does not serve what comes after it was told that it came too late', async () => {
  send('/operations', 'application/json', '{"type":"t"}')
  await untilTimers(1)
  vi.advanceTimersByTime(REQUEST_TIMEOUT_MS)
  await once(socket, 'data')
  socket.write(' '.repeat(100 - '{"type":"t"}'.length))
  await new Promise((resolve) => socket.write('', resolve))
  // it has arrived before what is sent now, and would be served first
  const other = connect((edge.app.server.address() as AddressInfo).port, '127.0.0.1')
  other.write('GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n')
  await once(other, 'data')
  other.destroy()
  const closed = untilClosed(await served)
  vi.advanceTimersByTime(LAST_ANSWER_MS)
  await closed
  expect(edge.fake.calls).toEqual([])
})

it('leaves no timer behind when the body has arrived', async () => {
  send('/operations', 'application/json', '{"type":"t"}'.padEnd(100))
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(String(answer)).toMatch(/^HTTP\/1\.1 202 /)
  await untilTimers(0)
})

it('lets an upload take its time', async () => {
  const operation = edge.fake.add('draft')
  send(`/operations/op_${operation.id.replaceAll('-', '')}/items`, 'application/x-ndjson', '{"key":"a",')
  while (!edge.fake.calls.some(({ name }) => name === 'uploadItems'))
    await new Promise((resolve) => setImmediate(resolve))
  // the one that waits for its next bytes
  await untilTimers(1)
  vi.advanceTimersByTime(REQUEST_TIMEOUT_MS)
  socket.write('"input":{}}'.padEnd(100 - '{"key":"a",'.length))
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(String(answer)).toMatch(/^HTTP\/1\.1 200 [\s\S]*\{"added":1,"total":1\}$/)
  await untilTimers(0)
})

it('ends an upload that keeps its place and brings nothing', async () => {
  const operation = edge.fake.add('draft')
  send(`/operations/op_${operation.id.replaceAll('-', '')}/items`, 'application/x-ndjson', '{"key":"a",')
  while (!edge.fake.calls.some(({ name }) => name === 'uploadItems'))
    await new Promise((resolve) => setImmediate(resolve))
  await untilTimers(1)
  vi.advanceTimersByTime(UPLOAD_PATIENCE_MS + 1_000)
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(String(answer)).toMatch(/^HTTP\/1\.1 408 [\s\S]*"code":"request-timeout"/)
})
