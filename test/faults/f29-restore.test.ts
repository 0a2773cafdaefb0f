/**
 * The database is taken back to an older point while effects of the lost time are in the world. docs/restore.md is carried out,
 * and then nothing that was done is done again: it is found by lookup, or is uncertain until a person looks.
 */
import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import type { Submit } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { withServer, withStackOn } from './harness/load.ts'
import { settle } from './harness/phase-two.ts'
import { takeBackup } from './harness/postgres-copies.ts'
import type { PostgresServer } from './harness/postgres-server.ts'
import { type Stack, settleMs } from './harness/stack.ts'

const ITEMS = 150
const ROWS = 1_000
const DELAY_MS = 200
/** Effects that must be made in the time that is lost, of each type. */
const LOST_MIN = 8
const COMMAND_MS = 120_000
const POLL_MS = 50

const submission = (type: string, name: string, items = ITEMS): Submit => ({
  type,
  key: name,
  items: Array.from({ length: items }, (_, n) => ({
    key: `${name}-${n}`,
    input: type === 'fault-row' ? {} : { mode: 'ok', delay_ms: DELAY_MS },
  })),
})

const runCommand = (databaseUrl: string, args: readonly string[]): Promise<{ code: number | null; output: string }> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, [fileURLToPath(new URL('../../dist/cli.js', import.meta.url)), ...args], {
      env: { PATH: process.env.PATH ?? '', DATABASE_URL: databaseUrl },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += String(chunk)))
    child.on('close', (code) => resolve({ code, output }))
  })

/** It refuses while a worker of the lost time counts as alive. */
const recordRestore = async (databaseUrl: string): Promise<void> => {
  const giveUpAt = performance.now() + COMMAND_MS
  for (;;) {
    const { code, output } = await runCommand(databaseUrl, ['restored'])
    if (code === 0) return
    expect(output).toContain('was seen a moment ago: stop every worker')
    if (performance.now() > giveUpAt) throw new Error(output)
    await sleep(1_000)
  }
}

const appliedOf = async (stack: Stack, { items }: Submit): Promise<string[]> => {
  const log = await stack.effects.log()
  return items.map(({ key }) => key).filter((key) => (log[key]?.applied ?? 0) > 0)
}

const awaitApplied = async (stack: Stack, submit: Submit, count: number): Promise<void> => {
  while ((await appliedOf(stack, submit)).length < count) await sleep(POLL_MS)
}

const expectOnce = async (stack: Stack, submits: readonly Submit[]): Promise<void> => {
  const log = await stack.effects.idleLog()
  const keys = submits.flatMap(({ items }) => items.map(({ key }) => key))
  expect(keys.filter((key) => log[key]?.applied !== 1)).toEqual([])
  // not even asked for again: a provider that does not deduplicate would have done it
  expect(keys.filter((key) => (log[key]?.requests ?? 0) > 1)).toEqual([])
}

interface Scene {
  asked: Submit
  unasked: Submit
  rows: Submit
  /** Accepted in the time that is lost. */
  lost: readonly Submit[]
}

const sceneOf = (seed: number): Scene => ({
  asked: submission('fault-asked', `f29-${seed}-asked`),
  unasked: submission('fault-grant', `f29-${seed}-unasked`),
  rows: submission('fault-row', `f29-${seed}-rows`, ROWS),
  lost: [submission('fault-asked', `f29-${seed}-lost`, 12), submission('fault-grant', `f29-${seed}-lost-unasked`, 12)],
})

/** Work, a backup in the middle of it, more work, the end of (nearly) all processes, and the backup is what is left. */
const loseTime = async (server: PostgresServer, stack: Stack, { asked, unasked, rows, lost }: Scene) => {
  const [askedId, unaskedId, rowsId] = [
    await stack.client.submit(asked),
    await stack.client.submit(unasked),
    await stack.client.submit(rows),
  ]
  for (const started of [asked, unasked]) await awaitApplied(stack, started, 4)
  const backup = await takeBackup(server)
  const known = [await appliedOf(stack, asked), await appliedOf(stack, unasked)]

  const lostIds: string[] = []
  for (const submit of lost) lostIds.push(await stack.client.submit(submit))
  for (const submit of lost) await awaitApplied(stack, submit, 4)
  await awaitApplied(stack, asked, (known[0]?.length ?? 0) + LOST_MIN)
  await awaitApplied(stack, unasked, (known[1]?.length ?? 0) + LOST_MIN)
  for (const slot of [...stack.apis, ...stack.workers]) slot.retire()
  // one worker outlives everything, in the middle of its calls
  const [zombie, other] = stack.workers
  zombie?.member.signal('SIGSTOP')
  await other?.member.kill()
  for (const api of stack.apis) await api.member.kill()
  await backup.restore()
  backup.remove()
  return { askedId, unaskedId, rowsId, lostIds, wakeZombie: () => zombie?.member.signal('SIGCONT') }
}

const attempt = (seed: number) => (server: PostgresServer) => {
  const stackOptions = { apis: 1, workers: 2, random: seededRandom(seed) }
  return withStackOn(server, stackOptions, async (before) => {
    const scene = sceneOf(seed)
    const { askedId, unaskedId, rowsId, lostIds, wakeZombie } = await loseTime(server, before, scene)
    await before.effects.idleLog()
    await recordRestore(server.url)
    const env = { FAULTS_EFFECTS_URL: before.effects.url }
    await withStackOn(server, { ...stackOptions, env }, async (after) => {
      const stack: Stack = { ...after, effects: before.effects }
      for (const id of lostIds) expect((await stack.client.call('GET', `/operations/${id}`)).status).toBe(404)
      wakeZombie()
      // whoever was told 202 in the lost time posts again, under the same key
      const again = []
      for (const submit of scene.lost) again.push(await stack.client.submit(submit))
      const ids = [askedId, unaskedId, rowsId, ...again]
      // what cannot be looked up ends with a person; until then it is nothing but uncertain
      const withinMs = settleMs() + 2 * ITEMS * DELAY_MS
      const operations = await settle(stack, stack.client, ids, { person: true, withinMs })
      expect(operations.filter(({ status }) => status !== 'succeeded')).toEqual([])
      await expectOnce(stack, [scene.asked, scene.unasked, ...scene.lost])

      const countOf = async (id: string, reason: string): Promise<number> =>
        (await stack.client.ledger(id)).filter(({ reason_code }) => reason_code === reason).length
      expect(await countOf(askedId, 'FOUND_AFTER_RESTORE')).toBeGreaterThan(0)
      expect(await countOf(unaskedId, 'DATABASE_RESTORED')).toBeGreaterThan(0)
      const [written] = await stack.sql<{ n: number; keys: number }[]>`
        select count(*)::int as n, count(distinct item_key)::int as keys from fault_rows`
      expect(written).toEqual({ n: ROWS, keys: ROWS })
    })
  })
}

faultTest(
  'F29',
  'the database is restored to an older point: effects newer than the ledger are found by lookup or uncertain, never redone',
  { short: null, long: 3 },
  (fault) => fault.each(({ seed }) => withServer({}, attempt(seed))),
)
