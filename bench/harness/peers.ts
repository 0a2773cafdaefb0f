/** The peers of B3 and B4, each with a database of its own and the same job (peers/job.ts). */
import type postgres from 'postgres'
import type { BenchContext } from './bench.ts'
import { type Part, startPart } from './part.ts'
import { startRedis } from './redis.ts'

export interface Peer {
  name: string
  /** Fills its queue, which is not timed, and works it off. Answers with jobs a second. */
  run(): Promise<number>
}

export interface Peers {
  present: Peer[]
  absent: { name: string; reason: string }[]
}

interface PeerPlan {
  name: string
  file: string
  /** Besides those of every peer. */
  settings: Record<string, unknown>
  needsRedis?: boolean
  /** Of the full number of jobs: a slow peer is told by a part of them, and its rate is what counts. */
  share: number
}

const PLANS: readonly PeerPlan[] = [
  { name: 'graphile-worker', file: 'peers/graphile-worker.ts', settings: { tuned: false }, share: 0.1 },
  {
    name: 'graphile-worker, local queue',
    file: 'peers/graphile-worker.ts',
    settings: { tuned: true },
    share: 0.5,
  },
  { name: 'pg-boss, in batches', file: 'peers/pg-boss.ts', settings: { loops: 4, batch: 500 }, share: 0.5 },
  { name: 'BullMQ', file: 'peers/bullmq.ts', settings: {}, needsRedis: true, share: 0.5 },
  { name: 'DBOS', file: 'peers/dbos.ts', settings: {}, share: 0.05 },
]

export const createTargets = async (sql: postgres.Sql, count: number): Promise<void> => {
  await sql`create table targets (id int primary key, value int not null default 0) with (fillfactor = 70)`
  await sql`insert into targets select generate_series(0, ${count - 1}::int)`
  await sql`analyze targets`
}

export interface PeerJob {
  /** How many jobs the whole is; each peer has its share of them. */
  count: number
  concurrency: number
  providerUrl: string | null
}

export const openPeers = async (
  { server, closers, directory }: BenchContext,
  prefix: string,
  { count, concurrency, providerUrl }: PeerJob,
): Promise<Peers> => {
  const peers: Peers = { present: [], absent: [] }
  for (const [index, plan] of PLANS.entries()) {
    let redisPort: number | null = null
    if (plan.needsRedis) {
      const redis = await startRedis(closers, directory)
      if ('reason' in redis) {
        peers.absent.push({ name: plan.name, reason: redis.reason })
        continue
      }
      redisPort = redis.port
    }
    const { url, sql } = await server.open(closers, `${prefix}_peer${index}`, { migrated: false })
    await createTargets(sql, count)
    await sql`create table outcomes (target int not null, state text not null, ref text)`
    const part: Part = await startPart(closers, plan.file, {
      ...plan.settings,
      databaseUrl: url,
      providerUrl,
      concurrency,
      redisPort,
    })
    const jobs = Math.max(1, Math.round(count * plan.share))
    peers.present.push({
      name: plan.name,
      async run() {
        await sql`truncate outcomes`
        await part.call('enqueue', jobs)
        await sql`vacuum analyze`
        await server.settle() // as for opledger, whose items are stored before its turn is timed
        const rate = await part.call<number>('work', jobs)
        const [done] = await sql<{ count: number }[]>`select count(distinct target)::int as count from outcomes`
        if (done?.count !== jobs) throw new Error(`${plan.name}: ${done?.count} outcomes of ${jobs} jobs`)
        return rate
      },
    })
  }
  return peers
}
