/** Retention during claim, replay and paging: only what is over and explained goes, 404/410 and never 500, summaries stay. */
import { afterAll, beforeAll, expect } from 'vitest'
import { uuidOf } from '../invariants/states-account.ts'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import type { Answer, Operation, Submit } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { leap, openJanitors } from './harness/janitors.ts'
import { closeCases } from './harness/person.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { ofKey, within } from './harness/traps.ts'

const WAIT_MS = 60_000
const PAGE = 4
const TYPES = ['fault-grant', 'fault-hasty']
/** Replays of one operation: each makes its chain longer, and younger. */
const REPLAYS_MAX = 3

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ apis: 2, workers: 2, random: seededRandom(28) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

/** Items by their modes, some of each. */
const submission = (type: string, key: string, modes: Record<string, number>, delay_ms = 0): Submit => ({
  type,
  key,
  items: Object.entries(modes).flatMap(([mode, count]) =>
    Array.from({ length: count }, (_, n) => ({ key: `${key}-${mode}-${n}`, input: { mode, delay_ms } })),
  ),
})
const scene = (name: string) => ({
  done: submission('fault-grant', `${name}-done`, { ok: 10 }),
  rejected: submission('fault-grant', `${name}-rejected`, { ok: 3, reject: 6 }),
  doubt: submission('fault-grant', `${name}-doubt`, { ok: 6, apply_then_hang: 1 }),
  dead: submission('fault-hasty', `${name}-dead`, { ok: 6, busy: 2 }),
  paused: submission('fault-grant', `${name}-paused`, { ok: 30 }, 60),
  slow: submission('fault-grant', `${name}-slow`, { ok: 50 }, 60),
})
type Part = keyof ReturnType<typeof scene>
const PARTS: readonly Part[] = ['done', 'rejected', 'doubt', 'dead', 'paused', 'slow']

type Purged = Operation & { items_purged_at: string | null; ledger_purged_at: string | null }
const read = async (id: string): Promise<Purged> => (await account.client.get(id)) as Purged
const reach = (id: string, what: string, holds: (operation: Purged) => boolean): Promise<void> =>
  until(`${id} ${what}`, async () => holds(await read(id)), WAIT_MS)
const rowsOf = async (id: string): Promise<{ items: number; entries: number }> => {
  const [row] = await stack.sql<{ items: number; entries: number }[]>`
    select (select count(*)::int from operation_items where operation_id = ${uuidOf(id)}::uuid) as items,
      (select count(distinct ord)::int from ledger_entries where operation_id = ${uuidOf(id)}::uuid and state is not null) as entries`
  return row ?? { items: -1, entries: -1 }
}
const expectStatus = ({ status, body }: Answer, allowed: readonly number[], what: string): void => {
  if (!allowed.includes(status)) throw new Error(`${what} answered ${status}: ${JSON.stringify(body)}`)
}

/** Walks a list page by page. Null: it is gone, with the code that says so. */
const walk = async (id: string, part: 'items' | 'ledger'): Promise<Record<string, unknown>[] | null> => {
  const rows: Record<string, unknown>[] = []
  for (let cursor = ''; ; ) {
    const path = `/operations/${id}/${part}?limit=${PAGE}${cursor}`
    const answer = await account.client.tryCall('GET', path)
    expectStatus(answer, [200, 410], path)
    if (answer.status === 410) {
      expect(answer.body.code).toBe(`${part}-purged`)
      return null
    }
    rows.push(...(answer.body.items as Record<string, unknown>[]))
    if (answer.body.next_cursor === undefined) return rows
    cursor = `&cursor=${answer.body.next_cursor}`
  }
}
/** All of a list at once. Null: it is gone, or went while it was read, and then the connection was cut. */
const download = async (id: string, part: 'items' | 'ledger'): Promise<unknown[] | null> => {
  const response = await fetch(`${stack.apis[0]?.url}/operations/${id}/${part}`, {
    headers: { accept: 'application/x-ndjson' },
  })
  expect([200, 410]).toContain(response.status)
  const text = await response.text().catch(() => null)
  if (text === null || response.status === 410) return null
  return text.trim().split('\n').filter(Boolean)
}

interface Seen {
  whole: number
  gone: number
}
/** Reads a list again and again: it is whole as long as it is there, and does not come back. */
const reader = async (id: string, total: number, seen: Seen, goesOn: () => boolean): Promise<void> => {
  let isGone = false
  while (goesOn()) {
    for (const items of [await walk(id, 'items'), await download(id, 'items')]) {
      if (items === null) isGone = true
      else {
        expect(items).toHaveLength(total)
        expect(isGone).toBe(false)
      }
      seen[items === null ? 'gone' : 'whole']++
    }
    const { status } = await read(id)
    const entries = await walk(id, 'ledger')
    // it was over before its ledger was read
    if (status === 'succeeded' && entries !== null) {
      expect(new Set(entries.map((entry) => entry.item_key)).size).toBe(total)
    }
  }
}
/** A lease that ran out on a busy machine leaves a doubt, which keeps everything: a person closes it, as it is not meant here. */
const reachGone = (id: string): Promise<void> =>
  until(
    `${id} is gone but for its summary`,
    async () => {
      const { status, ledger_purged_at } = await read(id)
      if (status === 'reconciliation_required') await closeCases(stack, account.client, [id], { absentToo: true })
      return ledger_purged_at !== null
    },
    WAIT_MS,
  )

/** Replays an operation, and what was made of it, until nothing can be replayed any more. */
const replayer = async (id: string, goesOn: () => boolean): Promise<string[]> => {
  const made: string[] = []
  const scope = { states: ['failed'], failure_classes: ['validation_rejected'] }
  for (let source = id; goesOn() && made.length < REPLAYS_MAX; ) {
    const preflight = await account.client.tryCall('POST', `/operations/${source}/replay-preflight`, { scope })
    expectStatus(preflight, [200, 410], 'a preflight')
    if (preflight.status === 410 || (preflight.body.blocked_by as string[]).includes('items-purged')) break
    if (preflight.body.allowed !== true) continue
    const replay = await account.client.tryCall('POST', `/operations/${source}/replay`, {
      preflight_id: preflight.body.preflight_id,
      reason: 'fault suite',
    })
    expectStatus(replay, [202, 409, 410, 412], 'a replay')
    if (replay.status !== 202) continue
    source = String(replay.body.id)
    made.push(source)
    await reach(source, 'is over', ({ status }) => status === 'failed')
  }
  return made
}

const discardDeadLetters = async (id: string): Promise<void> => {
  const { body } = await account.client.call('GET', `/dead-letters?operation_id=${id}&status=open`)
  for (const letter of body.items as { id: string }[]) {
    const answer = await account.client.call('POST', `/dead-letters/${letter.id}/discard`, { reason: 'fault suite' })
    expect(answer.status).toBe(200)
  }
}

faultTest(
  'F28',
  'time leaps by years while operations run, wait, are in doubt, replayed and read: what is open keeps every row, what is over goes as a whole with 410, and its summary and its protection from a repeat stay',
  { short: 2, long: 8 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const parts = scene(`f28-${seed}`)
      const ids = {} as Record<Part, string>
      const watched = account.watch()
      const janitors = openJanitors(stack, TYPES, () => account.ids())
      let reading = true
      const goesOn = (): boolean => reading
      const seen: Seen = { whole: 0, gone: 0 }
      try {
        for (const part of PARTS) ids[part] = await account.client.submit(parts[part])
        const readers = PARTS.map((part) => reader(ids[part], parts[part].items.length, seen, goesOn))
        const replays = replayer(ids.rejected, goesOn)
        for (const work of [...readers, replays]) work.catch(() => {})
        await account.client.act('pause', ids.paused)
        for (const part of ['done', 'slow', 'rejected'] as const) {
          await reachGone(ids[part])
        }
        await reach(ids.doubt, 'is in doubt', ({ status }) => status === 'reconciliation_required')
        reading = false
        await Promise.all(readers)
        expect(seen.whole).toBeGreaterThan(0)
        expect(seen.gone).toBeGreaterThan(0)
        for (const replay of await replays) {
          await reach(replay, 'is gone with its chain', (operation) => operation.ledger_purged_at !== null)
        }

        // open: all of it is there, however old
        for (const part of ['doubt', 'dead', 'paused'] as const) {
          expect(await read(ids[part])).toMatchObject({ items_purged_at: null, ledger_purged_at: null })
          expect((await rowsOf(ids[part])).items).toBe(parts[part].items.length)
        }
        expect((await rowsOf(ids.doubt)).entries).toBe(parts.doubt.items.length)
        expect((await rowsOf(ids.dead)).entries).toBe(parts.dead.items.length)

        // closed: it goes as well
        await janitors.standStill(async () => {
          await closeCases(stack, account.client, [ids.doubt], { absentToo: true })
          await discardDeadLetters(ids.dead)
          await account.client.act('resume', ids.paused)
        })
        for (const part of PARTS) {
          await reachGone(ids[part])
          await until(`no row of ${part} is left`, async () => {
            const { items, entries } = await rowsOf(ids[part])
            return items + entries === 0
          })
        }
      } finally {
        reading = false
        await janitors.stop()
      }
      await watched.stop()

      const failed: Record<Part, number> = { done: 0, rejected: 6, doubt: 0, dead: 2, paused: 0, slow: 0 }
      for (const part of PARTS) {
        const total = parts[part].items.length
        const { counts, status } = await read(ids[part])
        expect({ part, status, ...counts }).toMatchObject({
          part,
          status: failed[part] > 0 ? 'partially_succeeded' : 'succeeded',
          total,
          applied: total - failed[part],
          failed: failed[part],
        })
      }

      // nothing tells any more that they were done but the registry, and that is enough
      const again = await account.client.submit({ ...parts.done, key: `f28-${seed}-again` })
      await settle(stack, account.client, [again])
      expect((await read(again)).counts).toMatchObject({ total: 10, skipped: 10, applied: 0 })
      const log = await stack.effects.idleLog()
      for (const { key } of parts.done.items) expect(log[key]).toMatchObject({ requests: 1, applied: 1 })
      await account.end()
    }),
)

faultTest(
  'F28',
  'a worker dies with a purge in hand: another one goes on where it was',
  { short: 2, long: 5 },
  (fault) =>
    fault.each(async ({ index, seed }) => {
      const parts = [
        submission('fault-grant', `f28-${seed}-dies`, { ok: 8 }),
        submission('fault-grant', `f28-${seed}-too`, { ok: 3 }),
      ]
      const ids: string[] = []
      for (const part of parts) ids.push(await account.client.submit(part))
      await settle(stack, account.client, ids, { person: true })
      const [id = ''] = ids
      const trap = await stack.probes.arm({
        point: index % 2 === 0 ? 'chain-marked' : 'rows-purged',
        matches: ofKey(stack, `f28-${seed}-dies`),
        action: { kind: 'kill' },
      })
      await leap(stack, ids)
      // a worker that starts looks at once, and not at its next time
      await stack.workers[0]?.member.kill()
      await within(WAIT_MS, 'a worker takes what is old', trap.hit)
      const { items_purged_at } = await read(id)
      expect(items_purged_at).not.toBeNull()
      expect(await walk(id, 'items')).toBeNull()
      for (const one of ids) {
        await reachGone(one)
        await until(
          `no row of ${one} is left`,
          async () => {
            const { items, entries } = await rowsOf(one)
            return items + entries === 0
          },
          WAIT_MS,
        )
      }
      expect((await read(id)).counts).toMatchObject({ total: 8, applied: 8 })
      await account.end()
    }),
)
