/**
 * The storm: workers, zombies, operators, lookups, callbacks, cancels and pauses on four operations that want each other's effect keys,
 * with the statements of storage/run as they are. After each round, and again and again within it, everything that a shard
 * claims to know is compared with the rows that say it.
 *
 * By itself, on an embedded PostgreSQL or the one whose URL is given: node --import tsx test/support/storm.ts 250 [seed] [url]
 */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { createLog } from '../../src/log.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { items, storeOperation, wipe } from './races.ts'
import { type Random, seededRandom } from './random.ts'
import {
  audit,
  beat,
  bringHome,
  callBack,
  cancelSome,
  deliverLate,
  EXTERNAL,
  expireLeases,
  type Figures,
  makeDue,
  pauseAndResume,
  reconcile,
  STEPPED,
  type Storm,
  TRANSACTIONAL,
} from './storm-actors.ts'
import { findViolations } from './storm-audit.ts'
import { workOnce } from './storm-worker.ts'

const ITEMS = 12
/** Fewer: each is three effects. */
const STEPPED_ITEMS = 6
const SHARDS = 2
const WORKERS = 4
const RECONCILERS = 2
const POOL = 16
/** A round that is not over by then is stuck: it takes well under a second on an idle machine. */
const ROUND_MS = 45_000

/**
 * Two operations of each type; each pair wants the same keys in reverse order, and all but those with steps, whose keys have
 * the step behind them, want some of each other's.
 */
const plant = async (database: Database): Promise<string[]> => {
  const forward = (name: string, count: number) =>
    items(count, (ord) => (ord < 3 ? `all:${ord}` : `${name}:${ord % (count - 2)}`))
  const backward = (name: string, count: number) => {
    const keys = forward(name, count)
      .map((item) => item.effectKey)
      .reverse()
    return items(count, (ord) => keys[ord] ?? '')
  }
  const ids: string[] = []
  for (const { name, steps } of [EXTERNAL, STEPPED, TRANSACTIONAL]) {
    const count = steps.length === 0 ? ITEMS : STEPPED_ITEMS
    for (const planted of [forward(name, count), backward(name, count)]) {
      ids.push(await storeOperation(database, { type: name, items: planted, shards: SHARDS, steps }))
    }
  }
  return ids
}

const isOver = async ({ database }: Storm): Promise<boolean> => {
  const [row] = await database.query(
    ({ sql }) => sql<{ open: boolean }>`
      select exists (select from operations where completed_at is null)
        or exists (select from reconciliation_cases where closed_at is null) as open`,
  )
  return row?.open === false
}

const describeStuck = async ({ database }: Storm): Promise<string> => {
  const rows = await database.query(
    ({ sql }) => sql`
      select o.status, o.cancel_requested_at, s.operation_id, s.shard, s.type, s.state, s.cursor, s.to_ord, s.in_flight, s.waiting,
        s.uncertain, s.stop_requested, (select jsonb_agg(c.*) from reconciliation_cases c
          where c.operation_id = o.id and c.shard = s.shard and c.closed_at is null) as cases
      from operations o join operation_shards s on s.operation_id = o.id where o.completed_at is null`,
  )
  return `the round is stuck:\n${rows.map((row) => JSON.stringify(row)).join('\n')}`
}

const runRound = async (database: Database, figures: Figures, random: Random): Promise<void> => {
  await wipe(database)
  const storm: Storm = { database, figures, operationIds: await plant(database), live: true, held: new Set(), late: [] }
  const again = async (step: (storm: Storm, random: Random) => Promise<unknown>): Promise<void> => {
    const own = seededRandom(random.below(2 ** 31))
    try {
      while (storm.live) await step(storm, own)
    } catch (error) {
      storm.live = false
      throw error
    }
  }
  const actors = [
    ...Array.from({ length: WORKERS }, () => again(workOnce)),
    ...Array.from({ length: RECONCILERS }, () => again(reconcile)),
    again(beat),
    again(expireLeases),
    again(makeDue),
    again(deliverLate),
    again(callBack),
    again(pauseAndResume),
    again(audit),
    cancelSome(storm, seededRandom(random.below(2 ** 31))),
    again(async () => {
      await sleep(5)
      if (await isOver(storm)) storm.live = false
    }),
  ]
  const deadline = setTimeout(() => {
    storm.live = false
  }, ROUND_MS)
  const ended = await Promise.allSettled(actors)
  clearTimeout(deadline)
  const failed = ended.find((actor) => actor.status === 'rejected')
  if (failed) throw failed.reason

  // what comes after the end moves counters and opens cases, and leaves every status as it is
  for (const { lease, report } of storm.late.splice(0)) await bringHome(storm, lease, [report])
  for (let steps = 0; steps < 50 && !(await isOver(storm)); steps++) await reconcile(storm, random)
  if (!(await isOver(storm))) throw new Error(await describeStuck(storm))
  const violations = await findViolations(database)
  if (violations.length > 0) throw new Error(violations.join('\n'))
  await countSteps(database, figures)
  figures.rounds++
}

/** What steps went through, as the ledger tells it. */
const countSteps = async (database: Database, figures: Figures): Promise<void> => {
  const rows = await database.query(
    ({ sql }) => sql<{ reason: string; n: number }>`
      select reason_code as reason, count(*)::int as n from ledger_entries where step <> '' group by reason_code`,
  )
  const of = (reason: string): number => rows.find((row) => row.reason === reason)?.n ?? 0
  figures.stepsApplied += of('STEP_APPLIED')
  figures.stepsFoundApplied += of('STEP_ALREADY_APPLIED')
  figures.stepsDueAfterDoubt += of('NEXT_STEP_DUE')
  figures.stoppedBetweenSteps += of('STOPPED_BETWEEN_STEPS')
}

const readDeadlocks = async (url: string): Promise<number> => {
  const database = openDatabase({ url, size: 1, name: 'storm figures' })
  try {
    const [row] = await database.query(
      ({ sql }) => sql<{ n: number }>`
        select deadlocks::int as n from pg_stat_database where datname = current_database()`,
    )
    return row?.n ?? 0
  } finally {
    await database.close()
  }
}

/** Runs so many rounds; throws at the first violation. The seed gives the same decisions again, not the same timing. */
export const runStorm = async (url: string, rounds: number, seed: number): Promise<Figures & { deadlocks: number }> => {
  const figures: Figures = {
    rounds: 0,
    takeovers: 0,
    windows: 0,
    retries: 0,
    explained: 0,
    converged: 0,
    batches: 0,
    batchesRolledBack: 0,
    crashes: 0,
    lateReports: 0,
    cancels: 0,
    pauses: 0,
    resolved: 0,
    lookups: 0,
    resends: 0,
    doubtsClosed: 0,
    stepsApplied: 0,
    stepsFoundApplied: 0,
    stepsDueAfterDoubt: 0,
    stoppedBetweenSteps: 0,
    callbacks: 0,
    callbacksRepeated: 0,
    callbacksDeferred: 0,
    audits: 0,
  }
  const random = seededRandom(seed)
  const before = await readDeadlocks(url)
  const database = openDatabase({ url, size: POOL, name: 'storm' })
  try {
    for (let round = 0; round < rounds; round++) {
      try {
        await runRound(database, figures, random)
      } catch (error) {
        throw new Error(
          `round ${round} of the storm with seed ${seed}: ${error instanceof Error ? error.message : error}`,
          {
            cause: error,
          },
        )
      }
    }
  } finally {
    await database.close() // a session reports its figures when it ends
  }
  return { ...figures, deadlocks: (await readDeadlocks(url)) - before }
}

const standAlone = async (rounds: number, seed: number, givenUrl: string | undefined): Promise<void> => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'opledger-storm-'))
  chmodSync(dataDir, 0o755)
  const server = givenUrl
    ? null
    : await startEmbeddedPostgres({
        dataDir,
        log: createLog({ level: 'warn', name: 'storm' }),
        settings: { fsync: 'off' },
      })
  try {
    const url = givenUrl ?? server?.url ?? ''
    await migrate({ url })
    const startedAt = performance.now()
    console.log(`storm of ${rounds} rounds, seed ${seed}`)
    console.log(await runStorm(url, rounds, seed), `${Math.round((performance.now() - startedAt) / 1_000)} s`)
  } finally {
    await server?.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [rounds = '250', seed = String(Date.now() % 1_000_000), url] = process.argv.slice(2)
  await standAlone(Number(rounds), Number(seed), url)
}
