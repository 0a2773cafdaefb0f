/** Claims of a worker, statement by statement on one connection: the time of the statements, and of nothing else. */
import { report } from '../../src/services/evidence-reports.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { converge } from '../../src/storage/run/converge.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readWindow } from '../../src/storage/run/window.ts'
import type { Closers } from './closers.ts'

const WORKER = 'b7b7b7b7-0000-4000-8000-000000000000'
const TYPE = {
  name: 'bench-update',
  version: 1,
  leaseMs: 600_000,
  windowMax: 500,
  compensates: false,
  codeVersion: 'bench',
}
const SEND_BY_MS = 10_000

export interface Claims {
  /** Median of `count` claims, in ms: a shard and its window. Each is given an outcome afterwards, which is not timed. */
  run(count: number): Promise<number>
}

export const openClaims = (closers: Closers, databaseUrl: string): Claims => {
  const database = openDatabase({ url: databaseUrl, size: 1, name: 'bench claims' })
  closers.add(() => database.close())
  return {
    async run(count) {
      const tookMs: number[] = []
      for (let n = 0; n < count; n++) {
        const startedAt = performance.now()
        const claimed = await claim(database)
        tookMs.push(performance.now() - startedAt)
        await finish(database, claimed)
      }
      return tookMs.sort((a, b) => a - b)[Math.floor(count / 2)] ?? Number.NaN
    },
  }
}

const claim = async (database: Database) => {
  const { shards } = await database.query((connection) =>
    claimReadyShards(connection, { workerId: WORKER, types: [TYPE], limit: 1, perTenant: 1, afterTenant: 0 }),
  )
  const [lease] = shards
  if (!lease) throw new Error('nothing is queued any more')
  const items = await database.query((connection) => readWindow(connection, lease, lease.cursor, lease.toOrd))
  const won = await database.query((connection) =>
    claimIntents(connection, lease, { from: lease.cursor, to: lease.toOrd, sendByMs: SEND_BY_MS }),
  )
  if (won?.size !== items.length) throw new Error('a window was not claimed whole')
  return { lease, items }
}

const finish = async (
  database: Database,
  { lease, items }: { lease: ClaimedShard; items: readonly { ord: number; effectKey: string }[] },
): Promise<void> => {
  await converge(database, lease, {
    source: 'worker',
    epoch: lease.epoch,
    workerId: WORKER,
    actor: null,
    codeVersion: 'c1',
    lookupAfterMs: null,
    reports: items.map(({ ord, effectKey }) =>
      report({ ord, effectKey, send: 1 }, { effect: 'applied', item: 'applied' }),
    ),
  })
  await finishShard(database, lease)
}
