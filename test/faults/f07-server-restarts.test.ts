import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { isFinal, NoAnswer, type Submit } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { openPostgresServer, type PostgresServer } from './harness/postgres-server.ts'
import { prepareDatabase } from './harness/prepare-database.ts'
import { openStack, type Stack } from './harness/stack.ts'

const RECOVERY_MS = 5_000
const CLIENTS = 3
/** Between two looks of a client at its operation. */
const PAUSE_MS = 100
const TRY_AGAIN_MS = 25

let server: PostgresServer
let stack: Stack
beforeAll(async () => {
  server = await openPostgresServer()
  await prepareDatabase(server.url)
  stack = await openStack({ databaseUrl: server.url, random: seededRandom(7) })
})
afterAll(async () => {
  await stack?.close()
  await server?.remove()
})

let made = 0
/** One of three is transactional; external ones can be asked about, so that all ends without a person. */
const submission = (): Submit => {
  const n = made++
  const [type, size] = n % 3 === 0 ? ['fault-row', 40] : ['fault-asked', 4]
  const items = Array.from({ length: size as number }, (_, item) => ({ key: `f07-${n}-${item}`, input: {} }))
  return { type: type as string, key: `f07-${n}`, items }
}

/** Clients that submit one operation after the other, each until it is accepted and over: no queue grows. Answers with what ends them. */
const startLoad = ({ client }: Account): (() => Promise<void>) => {
  let over = false
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!over) {
      const id = await client.submit(submission())
      while (!over && !isFinal(await client.get(id))) await sleep(PAUSE_MS)
    }
  })
  return async () => {
    over = true
    await Promise.all(clients)
  }
}

/** From now until an operation is accepted, in ms. */
const awaitAccepted = async ({ client }: Account): Promise<number> => {
  const from = performance.now()
  for (;;) {
    const answer = await client.trySubmit(submission()).catch((error: unknown) => {
      if (error instanceof NoAnswer) return null
      throw error
    })
    if (answer?.status === 202) return performance.now() - from
    if (answer && answer.status !== 503) throw new Error(`${answer.status}: ${JSON.stringify(answer.body)}`)
    await sleep(TRY_AGAIN_MS)
  }
}

/** Each leaves the server up. */
const FAULTS = {
  'a fast restart': () => server.restart('fast'),
  'an immediate restart': () => server.restart('immediate'),
  'sessions that are terminated': async () => {
    expect(await server.terminateBackends()).toBeGreaterThan(0)
  },
  'a session that is killed, and the recovery that follows': async () => {
    expect(await server.crashBackend('opledger worker')).toBe(true)
  },
} satisfies Record<string, () => Promise<void>>

for (const [name, fault] of Object.entries(FAULTS)) {
  faultTest(
    'F7',
    `${name}, under load: every 202 survives, the next one comes within 5 s, and no process exits`,
    { short: 2, long: 30 },
    async ({ each, random, fail }) => {
      const account = openAccount(stack)
      const endLoad = startLoad(account)
      await each(async () => {
        await awaitAccepted(account)
        await sleep(random.below(300)) // somewhere in the work, not always just behind a commit
        await fault()
        expect(await awaitAccepted(account)).toBeLessThan(RECOVERY_MS)
        await account.during()
      })
      await endLoad()
      await account.end().catch(fail)
      await account.close()
      expect([...stack.apis, ...stack.workers].map(({ exits }) => exits)).toEqual([[], [], []])
    },
  )
}
