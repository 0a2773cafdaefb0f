import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { clockOfFile, clockOff, findFakeTime, setClock } from './harness/fake-clock.ts'
import { type Fault, faultTest } from './harness/fault.ts'
import { expectNoExits, startLoad, withServer, withStackOn } from './harness/load.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'

const HOUR_MS = 3_600_000
const WRONG_MS = 5_000
const SIGNS = ['+1h', '-1h'] as const
const NEEDED = 'libfaketime is not installed (test/faults/set-up.sh says why)'

const libraryOr = (fault: Fault): string => findFakeTime() ?? fault.skip(NEEDED)

/** What the clock of a process says in its log, against ours. */
const offMs = (output: string): number => {
  const line = output.trim().split('\n').at(-1) ?? ''
  return Date.parse((JSON.parse(line) as { time: string }).time) - Date.now()
}

/** No stamp of the database may come from a process. */
const expectStampsOfDatabase = async (stack: Stack, ids: readonly string[], since: string): Promise<void> => {
  const uuids = ids.map((id) => id.slice('op_'.length))
  const wrong = await stack.sql`
    select id, created_at, started_at, completed_at from operations
    where replace(id::text, '-', '') = any(${uuids}) and not (created_at between ${since}::timestamptz and clock_timestamp()
      and started_at between ${since}::timestamptz and clock_timestamp()
      and completed_at between ${since}::timestamptz and clock_timestamp())`
  expect(wrong).toEqual([])
}

faultTest(
  'F13',
  'case 23: the clocks of api and workers are an hour off, each its own way: no difference in stamps, leases and retries',
  { short: null, long: 4 },
  async (fault) => {
    const library = libraryOr(fault)
    await fault.each(async ({ index, seed }) => {
      const [first, second] = index % 2 === 0 ? SIGNS : ([...SIGNS].reverse() as [string, string])
      const ofApi = index < 2 ? first : second
      const stack = await openStack({
        apis: 1,
        workers: 2,
        random: seededRandom(seed),
        launch: ({ kind, number }) => ({
          env: clockOff(library, kind === 'api' ? ofApi : number === 0 ? first : second),
        }),
      })
      try {
        const offs = stack.workers.map(({ member }) => Math.round(offMs(member.output()) / HOUR_MS))
        expect(offs).toEqual(first === '+1h' ? [1, -1] : [-1, 1])
        const [now] = await stack.sql<{ at: string }[]>`select clock_timestamp()::text as at`
        const load = startLoad(stack, { name: `f13-${seed}` })
        await load.more(10)
        // whose lease has to run out, by the database's clock and no other
        await stack.workers[index % 2]?.member.kill()
        // and who have to wait for a retry
        const retried = await load.account.client.submit({
          type: 'fault-asked',
          key: `f13-${seed}-busy`,
          items: Array.from({ length: 8 }, (_, n) => ({ key: `f13-${seed}-busy-${n}`, input: { mode: 'busy_once' } })),
        })
        await load.more(10)
        await load.stop()
        await load.expectWhole()
        await expectStampsOfDatabase(stack, [...load.accepted, retried], now?.at ?? '')
      } finally {
        await stack.close()
      }
    })
  },
)

faultTest(
  'F13',
  'the clock of the database jumps an hour: forward, all leases run out at once; back and right again, work waits; no effect twice',
  { short: null, long: 4 },
  async (fault) => {
    const library = libraryOr(fault)
    const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-clock-'))
    chmodSync(directory, 0o755)
    const file = path.join(directory, 'clock')
    try {
      await fault.each(({ index, seed }) => {
        setClock(file, '+0')
        return withServer({ env: clockOfFile(library, file) }, (server) =>
          withStackOn(server, { apis: 1, workers: 2, random: seededRandom(seed) }, async (stack) => {
            const load = startLoad(stack, { name: `f13d-${seed}`, delayMs: 100 })
            await load.more(10)
            const jump = index % 2 === 0 ? '+1h' : '-1h'
            setClock(file, jump)
            const [now] = await stack.sql<{ ms: number }[]>`
              select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`
            expect(Math.round(((now?.ms ?? 0) - Date.now()) / HOUR_MS)).toBe(jump === '+1h' ? 1 : -1)
            await sleep(WRONG_MS)
            // what is due by the old clock is not due after a jump back: the hour would have to pass, or the clock be mended
            if (jump === '-1h') setClock(file, '+0')
            await load.more(4)
            await load.stop()
            const operations = await settle(stack, load.account.client, [...load.accepted])
            expect(operations.filter(({ status }) => status !== 'succeeded')).toEqual([])
            expect(load.odd).toEqual([])
            // stamps of a clock that jumped are held against nothing
            await load.account.during()
            await load.account.close()
            expectNoExits(stack)
          }),
        )
      })
    } finally {
      rmSync(directory, { recursive: true, force: true })
    }
  },
)
