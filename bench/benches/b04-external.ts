import { compare } from '../harness/against-peers.ts'
import type { Bench } from '../harness/bench.ts'
import { startPart } from '../harness/part.ts'
import { openPeers } from '../harness/peers.ts'
import { atLeast } from '../harness/result.ts'
import { runDraft } from '../harness/run-draft.ts'
import { startApi, startWorker } from '../harness/service.ts'

/** Calls in flight, all of one shard: the larger a window, the fewer commits. */
const CONCURRENCY = 64

export const external: Bench = {
  id: 'B4',
  load: `20,000 calls to a local server that answers at once, ${CONCURRENCY} at a time, from the start of the operation to its final status`,
  async run(context) {
    const { quick, server, closers } = context
    const count = quick ? 1_000 : 20_000
    const provider = await startPart(closers, 'harness/provider.ts', { delayMs: 0, keeps: false })
    const providerUrl = String(provider.ready)
    const database = await server.open(closers, 'b4', { migrated: true })
    const api = await startApi(closers, { databaseUrl: database.url, providerUrl })
    await startWorker(closers, { databaseUrl: database.url, providerUrl })
    const bare = await startPart(closers, 'limits/bare-calls.ts', { providerUrl, concurrency: CONCURRENCY })
    const peers = await openPeers(context, 'b4', { count, concurrency: CONCURRENCY, providerUrl })
    return compare(context, {
      id: 'B4',
      what: `External effects, concurrency ${CONCURRENCY}`,
      async opledger() {
        const id = await api.draft('bench-call', count, (n) => ({ key: `t${n}`, input: {} }))
        await database.sql`vacuum analyze`
        await server.settle()
        return runDraft(api, id, count)
      },
      limit: { name: 'bare undici pool', goal: atLeast(0.8), run: () => bare.call<number>('run', count) },
      peers,
      peerGoal: atLeast(2),
      rounds: quick ? 1 : 5,
      chart: { title: 'Calling a provider for each item', unit: 'calls/s' },
    })
  },
}
