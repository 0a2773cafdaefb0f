/** Clients that are slow, large or lie about it, and the others beside them. */
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { HEADERS_TIMEOUT_MS, MAX_BODY_BYTES, MAX_JSON_DEPTH, REQUEST_TIMEOUT_MS } from '../../src/http/limits.ts'
import { seededRandom } from '../support/random.ts'
import { untilClosed } from '../support/socket-close.ts'
import { faultTest } from './harness/fault.ts'
import { openStack, type Stack } from './harness/stack.ts'

const SLOW_CLIENTS = 200
const TRICKLE_MS = 1_000
const READS = 400
const AT_ONCE = 4
const PAIRS = 5
const MEMORY_MB = 60
/** How often Node looks at connections that are too slow. */
const CHECKED_EVERY_MS = 30_000

let stack: Stack
let known: string
beforeAll(async () => {
  stack = await openStack({ apis: 1, workers: 1, random: seededRandom(24) })
  known = await stack.client.submit({ type: 'fault-grant', key: 'f24', items: [{ key: 'f24', input: {} }] })
})
afterAll(() => stack.close())

const connect = async (): Promise<net.Socket> => {
  const { hostname, port } = new URL(stack.apis[0]?.url ?? '')
  const socket = net.connect(Number(port), hostname)
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

/** Everything that comes until the server closes, or until it has been silent for so long. */
const answerOf = async (socket: net.Socket, withinMs: number): Promise<string> => {
  let text = ''
  socket.on('data', (chunk) => {
    text += String(chunk)
  })
  await Promise.race([untilClosed(socket), sleep(withinMs)])
  return text
}

const post = (length: number): string =>
  `POST /operations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nidempotency-key: f24\r\ncontent-length: ${length}\r\n\r\n`

const readQuantile = async (): Promise<number> => {
  const took: number[] = []
  const reader = async (): Promise<void> => {
    for (let reads = 0; reads < READS / AT_ONCE; reads++) {
      const startedAt = performance.now()
      await stack.client.get(known)
      took.push(performance.now() - startedAt)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, reader))
  return took.sort((a, b) => a - b)[Math.floor(took.length * 0.99)] ?? 0
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN

const residentMb = (): number => {
  const status = fs.readFileSync(`/proc/${stack.apis[0]?.member.pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024
}

/** So many clients that never end their headers, or their body, and send a byte now and then. */
const openSlowClients = async (): Promise<{ ages: Promise<number[]>; close(): void }> => {
  const sockets = await Promise.all(Array.from({ length: SLOW_CLIENTS }, connect))
  const openedAt = performance.now()
  for (const [index, socket] of sockets.entries()) {
    socket.write(index % 2 === 0 ? 'POST /operations HTTP/1.1\r\nhost: localhost\r\nx-slow: ' : post(1_000_000))
  }
  const trickle = setInterval(() => {
    for (const socket of sockets) if (!socket.destroyed) socket.write('a')
  }, TRICKLE_MS)
  return {
    ages: Promise.all(sockets.map((socket) => untilClosed(socket).then(() => performance.now() - openedAt))),
    close() {
      clearInterval(trickle)
      for (const socket of sockets) socket.destroy()
    },
  }
}

faultTest(
  'F24',
  '200 clients that send a byte a second: the p99 of the others stays below twice what it was, memory is flat',
  { short: 1, long: 5 },
  (fault) =>
    fault.each(async () => {
      await readQuantile() // warm
      const memoryBefore = residentMb()
      const [before, during, memory]: [number[], number[], number[]] = [[], [], []]
      // in turns, as others use this machine too, now more and now less
      for (let pair = 0; pair < PAIRS; pair++) {
        before.push(await readQuantile())
        const slow = await openSlowClients()
        try {
          during.push(await readQuantile())
          memory.push(residentMb() - memoryBefore)
        } finally {
          slow.close()
        }
      }
      // a few milliseconds are noise on any machine
      expect(median(during), `${during} beside ${before}`).toBeLessThan(2 * median(before) + 10)
      expect(Math.max(...memory)).toBeLessThan(MEMORY_MB)
    }),
)

faultTest('F24', 'clients that never end their request are cut', { short: null, long: 2 }, (fault) =>
  fault.each(async () => {
    const slow = await openSlowClients()
    const patience = Math.max(HEADERS_TIMEOUT_MS, REQUEST_TIMEOUT_MS) + 2 * CHECKED_EVERY_MS
    const ages = await Promise.race([slow.ages, sleep(patience).then(() => null)])
    slow.close()
    expect(ages, 'all of them are cut').not.toBeNull()
  }),
)

faultTest(
  'F24',
  'a body over the limit, one that is too deep, and a length that lies: 413, 400, 408 or 400, nothing is stored',
  { short: 2, long: 20 },
  (fault) =>
    fault.each(async () => {
      const [before] = await stack.sql<{ n: number }[]>`select count(*)::int as n from operations`
      const large = await connect()
      large.write(post(MAX_BODY_BYTES + 1))
      expect(await answerOf(large, 5_000)).toMatch(/^HTTP\/1\.1 413 [\s\S]*"code":/)

      for (const depth of [MAX_JSON_DEPTH + 1, 50_000]) {
        const deep = await connect()
        const body = `{"type":"fault-grant","items":${'['.repeat(depth)}${']'.repeat(depth)}}`
        deep.write(post(body.length) + body)
        expect(await answerOf(deep, 3_000)).toMatch(/^HTTP\/1\.1 400 [\s\S]*"code":/)
        deep.destroy()
      }

      const short = await connect()
      short.write(`${post(5)}{"type":"fault-grant"}`)
      expect(await answerOf(short, 3_000)).toMatch(/^HTTP\/1\.1 400 /)
      short.destroy()

      const long = await connect()
      long.write(`${post(1_000)}{"type":"fault-grant"}`)
      long.end()
      await answerOf(long, 3_000)
      expect(stack.apis[0]?.exits).toEqual([])
      const [after] = await stack.sql<{ n: number }[]>`select count(*)::int as n from operations`
      expect(after).toEqual(before)
      expect((await stack.client.get(known)).id).toBe(known)
    }),
)
