import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { faultTest } from './harness/fault.ts'
import { expectNoExits, startLoad, withServer, withStackOn } from './harness/load.ts'
import { openStandby } from './harness/postgres-copies.ts'
import { debianMajors, type PostgresServer } from './harness/postgres-server.ts'
import type { Stack } from './harness/stack.ts'

const READ_ONLY_MS = 20_000

faultTest(
  'F9',
  'the server says for a while that it takes no writes (25006): answered with 503, repeated later, and nothing failed',
  { short: null, long: 3 },
  (fault) =>
    withServer({}, (server) =>
      withStackOn(server, { apis: 1, workers: 2, random: seededRandom(fault.seed) }, (stack) =>
        fault.each(async ({ seed }) => {
          const load = startLoad(stack, { name: `f9r-${seed}` })
          await load.more(10)
          await server.configure({ default_transaction_read_only: 'on' })
          await sleep(READ_ONLY_MS)
          await server.configure({ default_transaction_read_only: null })
          await load.more(10)
          await load.stop()
          expect(load.answers.get(503)).toBeGreaterThan(0)
          await load.expectWhole()
          const [failed] = await stack.sql`select count(*)::int as n from ledger_entries where state = 'failed'`
          expect(failed?.n).toBe(0)
          expectNoExits(stack)
        }),
      ),
    ),
)

const failOver = async (opened: Stack, primary: PostgresServer, seed: number): Promise<void> => {
  const standby = await openStandby(primary, { synchronous: true })
  // the account is of the server that is left
  const sql = postgres(standby.server.url, { max: 2, onnotice: () => {} })
  try {
    const load = startLoad({ ...opened, sql }, { name: `f9s-${seed}`, delayMs: 20 })
    await load.more(20)
    await sleep(seededRandom(seed).below(500))
    primary.signalAll('SIGKILL')
    await standby.promote()
    for (const { member } of [...opened.apis, ...opened.workers]) {
      member.proxy.leadTo(standby.server.url)
      member.proxy.cut()
    }
    await load.more(20)
    await load.stop()
    await load.expectWhole()
    expectNoExits(opened)
  } finally {
    await sql.end({ timeout: 5 })
    await standby.server.remove()
  }
}

faultTest(
  'F9',
  'the primary dies and a synchronous standby takes over under load: every 202 is there, nothing twice, no process ends',
  { short: null, long: 6 },
  (fault) =>
    fault.each(({ index, seed }) => {
      const [debian] = debianMajors()
      // both versions, where both are there
      return withServer(index % 2 === 1 && debian !== undefined ? { debian } : {}, (primary) =>
        withStackOn(primary, { apis: 1, workers: 2, random: seededRandom(seed) }, (stack) =>
          failOver(stack, primary, seed),
        ),
      )
    }),
)
