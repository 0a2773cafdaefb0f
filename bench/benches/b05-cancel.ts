import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, BenchContext } from '../harness/bench.ts'
import type { BenchDatabase } from '../harness/database-server.ts'
import { short } from '../harness/interleave.ts'
import { type Part, startPart } from '../harness/part.ts'
import type { Arrival } from '../harness/provider.ts'
import { atMost, judge, type Result } from '../harness/result.ts'
import { type Api, type Operation, startApi, startWorker } from '../harness/service.ts'
import { quantile } from '../harness/statistics.ts'

/** More than is done before the cancel, however fast it is. */
const ITEMS = 10_000
/** How long an operation runs before it is cancelled, at most; and at least. */
const RUNS_MS = { min: 150, max: 700 }
const SLACK_MS = 100
const EFFECTS_MIN = 10_000
const PROVIDER_MS = 5
const LOOK_MS = 5
const PATIENCE_MS = 60_000

const someTime = (): number => RUNS_MS.min + Math.random() * (RUNS_MS.max - RUNS_MS.min)

export const cancel: Bench = {
  id: 'B5',
  load: 'operations of 10,000 items that are cancelled after 150 to 700 ms: in batches of 100 that take about 50 ms, and with 64 calls in flight',
  async run(context) {
    const { server, closers } = context
    const provider = await startPart(closers, 'harness/provider.ts', { delayMs: PROVIDER_MS, keeps: true })
    const providerUrl = String(provider.ready)
    const database = await server.open(closers, 'b5', { migrated: true })
    await database.sql`create table seen (operation_id text not null, at timestamptz not null)`
    await database.sql`create table batches (took_ms float8 not null)`
    const api = await startApi(closers, { databaseUrl: database.url, providerUrl })
    await startWorker(closers, { databaseUrl: database.url, providerUrl })

    const batches = await cancelBatches(context, api, database)
    const calls = await cancelCalls(context, api, provider)
    const late = batches.late + calls.late
    const effects = batches.effects + calls.effects
    const after = judge({
      id: 'B5',
      what: 'New effects after the acknowledgement of a cancel',
      against: `at least ${EFFECTS_MIN.toLocaleString('en-US')} effects`,
      goal: atMost(0),
      ratios: [late],
      runs: effects,
      absolute: `${late} of ${effects.toLocaleString('en-US')}`,
      note: 'the ratio is their number, and the runs are the effects that were looked at',
    })
    return { results: [batches.latency, { ...after, met: after.met && effects >= EFFECTS_MIN }], chart: null }
  },
}

/** Runs an operation, cancels it somewhere in the middle, and waits until it is final. */
const cancelOne = async (api: Api, type: string): Promise<{ operation: Operation; tookMs: number }> => {
  const items = Array.from({ length: ITEMS }, (_, n) => ({ key: `t${n}`, input: {} }))
  const { id } = await api.submit({ type, items })
  const giveUpAt = performance.now() + PATIENCE_MS
  while ((await api.get(id)).counts.applied === 0) {
    if (performance.now() > giveUpAt) throw new Error(`${id} did nothing in ${PATIENCE_MS / 1_000} s`)
    await sleep(LOOK_MS)
  }
  await sleep(someTime())
  const startedAt = performance.now()
  await api.cancel(id)
  const operation = await api.settled(id, 'cancelled')
  return { operation, tookMs: performance.now() - startedAt }
}

/** Rounds, of which the first warms up; each has a p95 of its own, held against that of its batches. */
const cancelBatches = async (
  { quick, say }: BenchContext,
  api: Api,
  { sql }: BenchDatabase,
): Promise<{ latency: Result; late: number; effects: number }> => {
  const { rounds, cancels } = quick ? { rounds: 1, cancels: 2 } : { rounds: 5, cancels: 20 }
  const all: number[] = []
  const ratios: number[] = []
  let late = 0
  let effects = 0
  for (let round = 0; round <= rounds; round++) {
    await sql`truncate batches`
    const tookMs: number[] = []
    for (let n = 0; n < cancels; n++) {
      const { operation, tookMs: ms } = await cancelOne(api, 'bench-paced')
      tookMs.push(ms)
      const seen = await readSeen(sql, operation)
      effects += seen.effects
      late += seen.late
      say(`round ${round} of ${rounds}: cancelled in ${short(ms)} ms, after ${operation.counts.applied} items`)
    }
    const [batch] = await sql<{ p95: number }[]>`
      select percentile_cont(0.95) within group (order by took_ms) as p95 from batches`
    if (round === 0) continue
    all.push(...tookMs)
    ratios.push(quantile(tookMs, 0.95) / ((batch?.p95 ?? Number.NaN) + SLACK_MS))
  }
  const latency = judge({
    id: 'B5',
    what: 'Cancel to final, running operation, batches of 100 (p95)',
    against: `one batch (p95) + ${SLACK_MS} ms`,
    goal: atMost(1),
    ratios,
    absolute: `p50 ${short(quantile(all, 0.5))} ms, p95 ${short(quantile(all, 0.95))} ms of ${all.length} cancels`,
  })
  return { latency, late, effects }
}

/** Asked in the database's own time, which has microseconds. A stop that nobody has seen would make every effect a late one. */
const readSeen = async (sql: BenchDatabase['sql'], { id }: Operation): Promise<{ effects: number; late: number }> => {
  const [row] = await sql<{ effects: number; late: number }[]>`
    select count(*)::int as effects, count(*) filter (where stop.seen_at is null or s.at > stop.seen_at)::int as late
    from seen s, (
      select max(stop_seen_at) as seen_at from operation_shards
      where operation_id = ${id.replace(/^op_/, '')}::uuid) stop
    where s.operation_id = ${id}`
  return row ?? { effects: 0, late: 0 }
}

const acknowledgedMs = (text: string | null): number => {
  if (text === null) throw new Error('a cancel that is final was never acknowledged')
  return Date.parse(text)
}

/** Sent by the worker's own clock, which is the machine's, as the database's is; of the worker's stamp whole milliseconds are known. */
const cancelCalls = async (
  { quick, say }: BenchContext,
  api: Api,
  provider: Part,
): Promise<{ late: number; effects: number }> => {
  let late = 0
  let effects = 0
  for (let n = 0; n < (quick ? 1 : 20); n++) {
    await provider.call('take')
    const { operation, tookMs } = await cancelOne(api, 'bench-stamp')
    const until = acknowledgedMs(operation.cancel.acknowledged_at)
    const arrivals = await provider.call<Arrival[]>('take')
    const own = arrivals.filter(({ key }) => key === operation.id)
    if (own.length < operation.counts.applied)
      throw new Error(`the provider saw ${own.length} calls of ${operation.id}`)
    effects += own.length
    late += own.filter(({ sentAt }) => sentAt === null || sentAt > until).length
    say(`cancelled in ${short(tookMs)} ms, after ${own.length} calls`)
  }
  return { late, effects }
}
