import type { Bench } from '../harness/bench.ts'
import { openClosers } from '../harness/closers.ts'
import { interleave, short } from '../harness/interleave.ts'
import { startPart } from '../harness/part.ts'
import { atLeast, judge } from '../harness/result.ts'
import { startApi, startWorker } from '../harness/service.ts'
import { median, ratiosOf } from '../harness/statistics.ts'

const PROVIDER_MS = 50
/** Shards of a worker, of the 8 that the type has. */
const SHARDS = 4
/** Calls that the new processes of a turn have made before the time is taken. */
const WARMING = 6_000

export const secondWorker: Bench = {
  id: 'B9',
  load: '20,000 calls to a provider that answers in 50 ms, in 8 shards of 16 calls, the default; a worker runs 4 shards',
  async run({ quick, server, closers, say }) {
    const count = quick ? 1_000 : 20_000
    const provider = await startPart(closers, 'harness/provider.ts', { delayMs: PROVIDER_MS, keeps: false })
    const providerUrl = String(provider.ready)
    const database = await server.open(closers, 'b9', { migrated: true })
    const api = await startApi(closers, { databaseUrl: database.url, providerUrl })
    const draft = (size: number) => api.draft('bench-slow', size, (n) => ({ key: `t${n}`, input: {} }))
    const work = (workers: number) => async (): Promise<number> => {
      const own = openClosers()
      try {
        for (let n = 0; n < workers; n++) {
          await startWorker(own, { databaseUrl: database.url, providerUrl, concurrency: SHARDS })
        }
        // cold processes need a second or two of a core each, which two workers would have to share
        const warming = await draft(quick ? 100 : WARMING)
        await api.start(warming)
        await api.settled(warming, 'succeeded')
        const id = await draft(count)
        await database.sql`vacuum analyze`
        const startedAt = performance.now()
        await api.start(id)
        await api.settled(id, 'succeeded')
        return count / ((performance.now() - startedAt) / 1_000)
      } finally {
        await own.closeAll()
      }
    }
    const rates = await interleave(
      { 'one worker': work(1), 'two workers': work(2) },
      { rounds: quick ? 1 : 5, settle: server.settle, say },
    )
    return {
      results: [
        judge({
          id: 'B9',
          what: `Two worker processes, provider answers in ${PROVIDER_MS} ms`,
          against: 'one worker process',
          goal: atLeast(1.9),
          ratios: ratiosOf(rates['two workers'], rates['one worker']),
          absolute: `two ${short(median(rates['two workers']))}/s, one ${short(median(rates['one worker']))}/s`,
        }),
      ],
      chart: {
        title: `Workers beside each other, provider answers in ${PROVIDER_MS} ms`,
        unit: 'calls/s',
        bars: [
          { label: 'one worker', value: median(rates['one worker']), kind: 'opledger' },
          { label: 'two workers', value: median(rates['two workers']), kind: 'opledger' },
        ],
      },
    }
  },
}
