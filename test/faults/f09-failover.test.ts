import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { faultTest, isLong } from './harness/fault.ts'
import { expectNoExits, expectWhole, openStackOn, startLoad } from './harness/load.ts'
import { openStandby } from './harness/postgres-copies.ts'
import { debianMajors, openPostgresServer } from './harness/postgres-server.ts'
import { SETTLE_MS } from './harness/stack.ts'

/** What a busy machine adds. */
const SETTLED_MS = SETTLE_MS + 60_000
const READ_ONLY_MS = isLong ? 20_000 : 3_000

faultTest(
  'F9',
  'the server says for a while that it takes no writes (25006): answered with 503, repeated later, and nothing failed',
  { short: 1, long: 3 },
  async (fault) => {
    const server = await openPostgresServer()
    const stack = await openStackOn(server, { apis: 1, workers: 2, random: seededRandom(fault.seed) })
    try {
      await fault.each(async ({ seed }) => {
        const load = startLoad(stack, { name: `f9r-${seed}` })
        await load.more(10)
        await server.configure({ default_transaction_read_only: 'on' })
        await sleep(READ_ONLY_MS)
        await server.configure({ default_transaction_read_only: null })
        await load.more(10)
        await load.stop()
        expect(load.answers.get(503)).toBeGreaterThan(0)
        await expectWhole(stack, [load], SETTLED_MS)
        const [failed] = await stack.sql`select count(*)::int as n from ledger_entries where state = 'failed'`
        expect(failed?.n).toBe(0)
        expectNoExits(stack)
      })
    } finally {
      await stack.close()
      await server.remove()
    }
  },
)

faultTest(
  'F9',
  'the primary dies and a synchronous standby takes over under load: every 202 is there, nothing twice, no process ends',
  { short: null, long: 2 },
  (fault) =>
    fault.each(async ({ index, seed }) => {
      const debian = debianMajors()[0]
      // both versions, where both are there
      const primary = await openPostgresServer(index % 2 === 1 && debian !== undefined ? { debian } : {})
      const stack = await openStackOn(primary, { apis: 1, workers: 2, random: seededRandom(seed) })
      const standby = await openStandby(primary, { synchronous: true })
      try {
        const load = startLoad(stack, { name: `f9s-${seed}`, delayMs: 20 })
        await load.more(20)
        await sleep(seededRandom(seed).below(500))
        primary.signalAll('SIGKILL')
        await standby.promote()
        const members = [...stack.apis, ...stack.workers]
        for (const { member } of members) {
          member.proxy.leadTo(standby.server.url)
          member.proxy.cut()
        }
        await load.more(20)
        await load.stop()
        // the account is of the server that is left
        const sql = postgres(standby.server.url, { max: 2, onnotice: () => {} })
        await expectWhole({ ...stack, sql }, [load], SETTLED_MS).finally(() => sql.end())
        expectNoExits(stack)
      } finally {
        await stack.close()
        await standby.server.remove()
        await primary.remove()
      }
    }),
)
