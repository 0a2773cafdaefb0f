import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../harness/bench.ts'
import { short } from '../harness/interleave.ts'
import { startPart } from '../harness/part.ts'
import type { Arrival } from '../harness/provider.ts'
import { atMost, judge } from '../harness/result.ts'
import { startApi, startWorker } from '../harness/service.ts'
import { quantile } from '../harness/statistics.ts'

/** Between two samples: longer than anything that coalesces wake-ups, so that the system is idle. */
const IDLE_MS = { min: 60, max: 140 }
const PATIENCE_MS = 30_000

const idle = (): Promise<void> => sleep(IDLE_MS.min + Math.random() * (IDLE_MS.max - IDLE_MS.min))
const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6

export const latency: Bench = {
  id: 'B6',
  load: 'one item at a time on an idle system, opledger and graphile-worker in turn; until the provider has the call',
  async run({ quick, server, closers, say }) {
    const provider = await startPart(closers, 'harness/provider.ts', { delayMs: 0, keeps: true })
    const providerUrl = String(provider.ready)
    const ours = await server.open(closers, 'b6', { migrated: true })
    const theirs = await server.open(closers, 'b6_peer', { migrated: false })
    await theirs.sql`create table outcomes (target int not null, state text not null, ref text)`
    const api = await startApi(closers, { databaseUrl: ours.url, providerUrl })
    await startWorker(closers, { databaseUrl: ours.url, providerUrl })
    const peer = await startPart(closers, 'peers/graphile-worker.ts', {
      databaseUrl: theirs.url,
      providerUrl,
      concurrency: 8,
      redisPort: null,
      tuned: false,
    })
    await peer.call('listen')

    /** From when `begin` says that it began until the provider has its call, on the clock that all processes share. */
    const sample = async (begin: () => Promise<number>): Promise<number> => {
      await idle()
      const startedAt = await begin()
      const { arrivedAt } = await provider.call<Arrival>('next', null, PATIENCE_MS)
      if (arrivedAt < startedAt) throw new Error('a call came that belongs to an earlier sample')
      return arrivedAt - startedAt
    }
    const submitOne = async (): Promise<number> => {
      const startedAt = nowMs()
      await api.submit({ type: 'bench-call', items: [{ key: 'one', input: {} }] })
      return startedAt
    }
    const addOne = (): Promise<number> => peer.call<number>('addOne', 1)

    const { rounds, samples } = quick ? { rounds: 1, samples: 10 } : { rounds: 5, samples: 100 }
    const all = { opledger: [] as number[], graphile: [] as number[] }
    const ratios = { p50: [] as number[], p95: [] as number[] }
    for (let round = 0; round <= rounds; round++) {
      await server.settle()
      const took = { opledger: [] as number[], graphile: [] as number[] }
      for (let n = 0; n < samples; n++) {
        took.opledger.push(await sample(submitOne))
        took.graphile.push(await sample(addOne))
      }
      const told = `opledger ${short(quantile(took.opledger, 0.5))} ms, graphile-worker ${short(quantile(took.graphile, 0.5))} ms`
      say(`${round === 0 ? 'warm-up' : `round ${round} of ${rounds}`}, p50: ${told}`)
      if (round === 0) continue
      all.opledger.push(...took.opledger)
      all.graphile.push(...took.graphile)
      ratios.p50.push(quantile(took.opledger, 0.5) / quantile(took.graphile, 0.5))
      ratios.p95.push(quantile(took.opledger, 0.95) / quantile(took.graphile, 0.95))
    }
    const line = (name: 'p50' | 'p95', q: number) =>
      judge({
        id: 'B6',
        what: `POST to the first effect, idle system, ${name}`,
        against: 'graphile-worker, addJob to run',
        goal: atMost(1),
        ratios: ratios[name],
        absolute: `opledger ${short(quantile(all.opledger, q))} ms, graphile-worker ${short(quantile(all.graphile, q))} ms`,
      })
    return {
      results: [line('p50', 0.5), line('p95', 0.95)],
      chart: {
        title: 'From the request to the first effect, idle system',
        unit: 'ms, less is better',
        bars: [
          { label: 'opledger, p50', value: quantile(all.opledger, 0.5), kind: 'opledger' },
          { label: 'opledger, p95', value: quantile(all.opledger, 0.95), kind: 'opledger' },
          { label: 'graphile-worker, p50', value: quantile(all.graphile, 0.5), kind: 'peer' },
          { label: 'graphile-worker, p95', value: quantile(all.graphile, 0.95), kind: 'peer' },
        ],
      },
    }
  },
}
