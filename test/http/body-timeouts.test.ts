/** Bodies that come slowly: uploads may, others may not. The clock is the test's own. */
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { REQUEST_TIMEOUT_MS, UPLOAD_PATIENCE_MS } from '../../src/http/limits.ts'
import { type Edge, openEdge } from './fake-services.ts'

let edge: Edge
let socket: Socket
beforeEach(async () => {
  edge = await openEdge()
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  socket = connect((edge.app.server.address() as AddressInfo).port, '127.0.0.1')
})
afterEach(async () => {
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
