import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../harness/bench.ts'
import { short } from '../harness/interleave.ts'
import { startPart } from '../harness/part.ts'
import type { Arrival } from '../harness/provider.ts'
import { atMost, judge } from '../harness/result.ts'
import { startApi, startWorker } from '../harness/service.ts'
import { quantile } from '../harness/statistics.ts'

const WARM_UP = 20
/** Between two samples: longer than anything that coalesces wake-ups, so that the system is idle. */
const IDLE_MS = { min: 60, max: 140 }
const LOOK_MS = 2
const PATIENCE_MS = 10_000

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

    /** When the next call arrived, on the clock that all processes share. */
    const arrival = async (): Promise<number> => {
      const giveUpAt = performance.now() + PATIENCE_MS
      while (performance.now() < giveUpAt) {
        const [first] = (await provider.call<{ arrivals: Arrival[] }>('take')).arrivals
        if (first) return first.arrivedAt
        await sleep(LOOK_MS)
      }
      throw new Error(`no call came within ${PATIENCE_MS / 1_000} s`)
    }
    const samples = { opledger: [] as number[], graphile: [] as number[] }
    for (let n = 0; n < (quick ? WARM_UP + 10 : WARM_UP + 400); n++) {
      await idle()
      const startedAt = nowMs()
      await api.submit({ type: 'bench-call', items: [{ key: 'one', input: {} }] })
      const oursMs = (await arrival()) - startedAt
      await idle()
      const addedAt = await peer.call<number>('addOne', n)
      const theirsMs = (await arrival()) - addedAt
      if (n < WARM_UP) continue
      samples.opledger.push(oursMs)
      samples.graphile.push(theirsMs)
    }
    const line = (q: number, name: string) => {
      const [a, b] = [quantile(samples.opledger, q), quantile(samples.graphile, q)]
      say(`${name}: opledger ${short(a)} ms, graphile-worker ${short(b)} ms`)
      return judge({
        id: 'B6',
        what: `POST to the first effect, idle system, ${name}`,
        against: 'graphile-worker, addJob to run',
        goal: atMost(1),
        ratios: [a / b],
        runs: samples.opledger.length,
        absolute: `opledger ${short(a)} ms, graphile-worker ${short(b)} ms`,
      })
    }
    return {
      results: [line(0.5, 'p50'), line(0.95, 'p95')],
      chart: {
        title: 'From the request to the first effect, idle system',
        unit: 'ms, less is better',
        bars: [
          { label: 'opledger, p50', value: quantile(samples.opledger, 0.5), kind: 'opledger' },
          { label: 'opledger, p95', value: quantile(samples.opledger, 0.95), kind: 'opledger' },
          { label: 'graphile-worker, p50', value: quantile(samples.graphile, 0.5), kind: 'peer' },
          { label: 'graphile-worker, p95', value: quantile(samples.graphile, 0.95), kind: 'peer' },
        ],
      },
    }
  },
}
