/** The route of the event stream, with clients that come back, leave, or ask for the head only. */
import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { MAX_STREAMS } from '../../src/http/limits.ts'
import type { OperationView } from '../../src/services/views.ts'
import { DB_TIME, type Edge, openEdge } from './fake-services.ts'

let edge: Edge
let operation: OperationView
let url: string
beforeEach(async () => {
  edge = await openEdge()
  operation = edge.fake.add()
  url = `/operations/${formatId('op', operation.id)}/events`
  edge.fake.events = [{ version: 1, kind: 'submitted', status: 'pending', at: DB_TIME, actor: 'dev', reason: null }]
})
afterEach(() => edge.app.close())

const STREAM = { accept: 'text/event-stream' }

const until = async (fact: () => boolean): Promise<void> => {
  while (!fact()) await new Promise((resolve) => setTimeout(resolve, 5))
}

/** A client on a connection of its own, once it has the first bytes. */
const openClient = async (): Promise<IncomingMessage> => {
  const { port } = edge.app.server.address() as AddressInfo
  const [answer] = (await once(get({ port, path: url, headers: STREAM, agent: false }), 'response')) as [
    IncomingMessage,
  ]
  await once(answer, 'data')
  answer.resume()
  answer.on('error', () => {}) // it is cut off on purpose
  return answer
}

it('answers 204 to whoever comes back after the end: an EventSource then stays away', async () => {
  edge.fake.change(operation, 'succeeded')
  const again = await edge.app.inject({ url, headers: { ...STREAM, 'last-event-id': '1' } })
  expect([again.statusCode, again.body]).toEqual([204, ''])
  const first = await edge.app.inject({ url, headers: STREAM })
  expect(first.statusCode).toBe(200)
  expect(first.body).toContain('id: 1\nevent: submitted\n')
})

it('gives the place of a client free as soon as it is gone, not when there is something to say', async () => {
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  const client = await openClient()
  await until(() => edge.fake.waiting === 1)
  client.destroy()
  await until(() => edge.fake.waiting === 0)
})

it('ends the streams of a server that closes, so that their clients go to another one', async () => {
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  const client = await openClient()
  const ended = once(client, 'end')
  await edge.app.close()
  await ended
  expect(client.complete).toBe(true)
})

it('reads nothing on for a HEAD, which nobody could stop', async () => {
  const answer = await edge.app.inject({ method: 'HEAD', url, headers: STREAM })
  expect([answer.statusCode, answer.headers['content-type']]).toEqual([200, 'text/event-stream; charset=utf-8'])
  // whoever comes later has read its events: a stream that was left open would have read its own before
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  const client = await openClient()
  await until(() => edge.fake.waiting > 0)
  expect(edge.fake.calls.filter(({ name }) => name === 'listEvents')).toHaveLength(1)
  client.destroy()
})

it('refuses streams beyond their limit with 503, and still answers long polls', async () => {
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  const controllers = Array.from({ length: MAX_STREAMS }, () => new AbortController())
  // in process, so that no thousands of sockets are needed
  const streams = controllers.map(({ signal }) => edge.app.inject({ url, headers: STREAM, signal }).catch(() => null))
  await until(() => edge.fake.waiting === MAX_STREAMS)
  const refused = await edge.app.inject({ url, headers: STREAM })
  expect([refused.statusCode, refused.json().code]).toEqual([503, 'overloaded'])
  expect(refused.headers['retry-after']).toBeDefined()
  const path = url.replace(/\/events$/, '')
  const polled = await edge.app.inject({ url: path, headers: { prefer: 'wait=1' } })
  expect([polled.statusCode, polled.headers['preference-applied']]).toEqual([200, 'wait=1'])
  edge.fake.change(operation, 'succeeded')
  await Promise.all(streams)
}, 30_000)
