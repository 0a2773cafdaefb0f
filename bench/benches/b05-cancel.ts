import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, BenchContext } from '../harness/bench.ts'
import { short } from '../harness/interleave.ts'
import { startPart } from '../harness/part.ts'
import type { Arrival } from '../harness/provider.ts'
import { atMost, judge, type Result } from '../harness/result.ts'
import { type Api, startApi, startWorker } from '../harness/service.ts'
import { quantile } from '../harness/statistics.ts'

/** More than is done before the cancel, however fast it is. */
const ITEMS = 10_000
/** How long an operation runs before it is cancelled, at most; and at least. */
const RUNS_MS = { min: 150, max: 700 }
const SLACK_MS = 100
const EFFECTS_MIN = 10_000
const PROVIDER_MS = 5

const someTime = (): number => RUNS_MS.min + Math.random() * (RUNS_MS.max - RUNS_MS.min)

/** Runs an operation, cancels it somewhere in the middle, and waits until it is final. */
const cancelOne = async (api: Api, type: string) => {
  const items = Array.from({ length: ITEMS }, (_, n) => ({ key: `t${n}`, input: {} }))
  const { id } = await api.submit({ type, items })
  while ((await api.get(id)).counts.applied === 0) await sleep(5)
  await sleep(someTime())
  const startedAt = performance.now()
  await api.cancel(id)
  const operation = await api.settled(id, 'cancelled')
  return { operation, tookMs: performance.now() - startedAt }
}

const acknowledgedMs = (text: string | null): number => {
  if (text === null) throw new Error('a cancel that is final was never acknowledged')
  return Date.parse(text)
}

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

    const { latency, late, effects } = await batches(context, api, database)
    const take = () => provider.call<{ arrivals: Arrival[] }>('take')
    const sent = await calls(context, api, take)
    const after: Result = judge({
      id: 'B5',
      what: 'New effects after the acknowledgement of a cancel',
      against: `at least ${EFFECTS_MIN.toLocaleString('en-US')} effects`,
      goal: atMost(0),
      ratios: [late + sent.late],
      runs: effects + sent.effects,
      absolute: `${late + sent.late} of ${(effects + sent.effects).toLocaleString('en-US')}`,
      note: 'the ratio is their number, and the runs are the effects that were looked at',
    })
    return {
      results: [latency, { ...after, met: after.met && effects + sent.effects >= EFFECTS_MIN }],
      chart: null,
    }
  },
}

const batches = async (
  { quick, say }: BenchContext,
  api: Api,
  { sql }: Awaited<ReturnType<BenchContext['server']['open']>>,
): Promise<{ latency: Result; late: number; effects: number }> => {
  const tookMs: number[] = []
  let late = 0
  let effects = 0
  for (let n = 0; n < (quick ? 2 : 60); n++) {
    const { operation, tookMs: ms } = await cancelOne(api, 'bench-paced')
    tookMs.push(ms)
    // asked in the database's own time, which has microseconds
    const [row] = await sql<{ effects: number; late: number }[]>`
      select count(*)::int as effects,
        count(*) filter (where s.at > (select max(stop_seen_at) from operation_shards
          where operation_id = ${operation.id.replace(/^op_/, '')}::uuid))::int as late
      from seen s where s.operation_id = ${operation.id}`
    effects += row?.effects ?? 0
    late += row?.late ?? 0
    say(`cancelled in ${short(ms)} ms, after ${operation.counts.applied} items`)
  }
  const lengths = await sql<{ took_ms: number }[]>`select took_ms from batches`
  const batchMs = quantile(
    lengths.map((row) => row.took_ms),
    0.95,
  )
  const p95Ms = quantile(tookMs, 0.95)
  const latency = judge({
    id: 'B5',
    what: 'Cancel to final, running operation, batches of 100 (p95)',
    against: `one batch (p95 ${short(batchMs)} ms) + ${SLACK_MS} ms`,
    goal: atMost(1),
    ratios: [p95Ms / (batchMs + SLACK_MS)],
    runs: tookMs.length,
    absolute: `p50 ${short(quantile(tookMs, 0.5))} ms, p95 ${short(p95Ms)} ms`,
  })
  return { latency, late, effects }
}

/** Sent by the worker's own clock, which is the machine's, as the database's is; of the worker's stamp whole milliseconds are known. */
const calls = async (
  { quick, say }: BenchContext,
  api: Api,
  take: () => Promise<{ arrivals: Arrival[] }>,
): Promise<{ late: number; effects: number }> => {
  let late = 0
  let effects = 0
  for (let n = 0; n < (quick ? 1 : 20); n++) {
    await take()
    const { operation, tookMs } = await cancelOne(api, 'bench-stamp')
    const until = acknowledgedMs(operation.cancel.acknowledged_at)
    const { arrivals } = await take()
    const own = arrivals.filter(({ key }) => key === operation.id)
    effects += own.length
    late += own.filter(({ sentAt }) => sentAt === null || sentAt > until).length
    say(`cancelled in ${short(tookMs)} ms, after ${own.length} calls`)
  }
  return { late, effects }
}
