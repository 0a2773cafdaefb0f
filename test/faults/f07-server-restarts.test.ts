import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type CheckedStack, openCheckedStack } from './harness/checked.ts'
import { NoAnswer, type Submit } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { openPostgresServer, type PostgresServer } from './harness/postgres-server.ts'
import { prepareDatabase } from './harness/prepare-database.ts'

const RECOVERY_MS = 5_000
const CLIENTS = 4
const TRY_AGAIN_MS = 25

let server: PostgresServer
let stack: CheckedStack
beforeAll(async () => {
  // what it said that it kept is kept, also when all of it is killed
  server = await openPostgresServer({ settings: { fsync: 'on' } })
  await prepareDatabase(server.url)
  stack = await openCheckedStack({ databaseUrl: server.url, random: seededRandom(7) })
})
afterAll(async () => {
  await stack?.close()
  await server?.remove()
})

let made = 0
const submission = (): Submit => {
  const n = made++
  const [type, size] = n % 3 === 0 ? ['fault-row', 40] : ['fault-asked', 4]
  const items = Array.from({ length: size as number }, (_, item) => ({ key: `f07-${n}-${item}`, input: {} }))
  return { type: type as string, key: `f07-${n}`, items }
}

/** Clients that submit one operation after the other, each until it is accepted. Answers with what ends them. */
const startLoad = (): (() => Promise<void>) => {
  let over = false
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!over) await stack.client.submit(submission())
  })
  return async () => {
    over = true
    await Promise.all(clients)
  }
}

/** From now until an operation is accepted, in ms. */
const awaitAccepted = async (): Promise<number> => {
  const from = performance.now()
  for (;;) {
    const answer = await stack.client.trySubmit(submission()).catch((error: unknown) => {
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
    await server.query('select 1').catch(() => sleep(TRY_AGAIN_MS))
  },
} satisfies Record<string, () => Promise<void>>

for (const [name, fault] of Object.entries(FAULTS)) {
  faultTest(
    'F7',
    `${name}, under load: every 202 survives, the next one comes within 5 s, and no process exits`,
    { short: 2, long: 30 },
    async ({ each, random, fail }) => {
      const endLoad = startLoad()
      await each(async () => {
        await awaitAccepted()
        await sleep(random.below(300)) // somewhere in the work, not always just behind a commit
        await fault()
        expect(await awaitAccepted()).toBeLessThan(RECOVERY_MS)
        await stack.holds()
      })
      await endLoad()
      await stack.settles().catch(fail)
      expect([...stack.apis, ...stack.workers].map(({ exits }) => exits)).toEqual([[], [], []])
    },
  )
}
