import { compare } from '../harness/against-peers.ts'
import type { Bench } from '../harness/bench.ts'
import { startPart } from '../harness/part.ts'
import { createTargets, openPeers } from '../harness/peers.ts'
import { atLeast } from '../harness/result.ts'
import { runDraft } from '../harness/run-draft.ts'
import { startApi, startWorker } from '../harness/service.ts'

/** What the type has: shards at a time, and items of a batch. */
const LANES = 4
const BATCH = 500
/** Jobs that a peer does at a time. */
const PEER_CONCURRENCY = 16

export const transactional: Bench = {
  id: 'B3',
  load: '100,000 items, each an UPDATE of a row of its own, from the start of the operation to its final status; queues are filled before',
  async run(context) {
    const { quick, server, closers } = context
    const count = quick ? 5_000 : 100_000
    const database = await server.open(closers, 'b3', { migrated: true })
    const bareDatabase = await server.open(closers, 'b3_bare', { migrated: true })
    for (const { sql } of [database, bareDatabase]) await createTargets(sql, count)
    const api = await startApi(closers, { databaseUrl: database.url })
    await startWorker(closers, { databaseUrl: database.url })
    const bare = await startPart(closers, 'limits/bare-inserts.ts', {
      databaseUrl: bareDatabase.url,
      lanes: LANES,
      batch: BATCH,
    })
    const peers = await openPeers(context, 'b3', { count, concurrency: PEER_CONCURRENCY, providerUrl: null })
    return compare(context, {
      id: 'B3',
      what: `${count.toLocaleString('en-US')} items, transactional`,
      async opledger() {
        const id = await api.draft('bench-update', count, (n) => ({ key: `t${n}`, input: { target: n } }))
        await database.sql`vacuum analyze`
        await server.settle()
        return runDraft(api, id, count)
      },
      limit: {
        name: 'bare INSERTs of the same rows',
        goal: atLeast(0.7),
        async run() {
          await bareDatabase.sql`vacuum analyze`
          await server.settle()
          return bare.call<number>('run', count)
        },
      },
      peers,
      peerGoal: atLeast(4),
      rounds: quick ? 1 : 5,
      chart: { title: 'Changing a row for each item', unit: 'items/s' },
    })
  },
}
