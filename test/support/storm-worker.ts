/** A worker of the storm: the steps of engine/run.ts, in a world that answers at random, stalls and dies. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { failureFate } from '../../src/services/outcome-reports.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards, claimReadyShards, type RunnableType } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { KeyKnown, takeNewEffects } from '../../src/storage/run/plain-batch.ts'
import {
  type BatchAttempt,
  type BatchOf,
  type BatchOutcome,
  commitBatch,
  takeBatchEffects,
} from '../../src/storage/run/transactional.ts'
import {
  type RunnableItem,
  readDueRetries,
  readItems,
  readOrphanedIntents,
  readRetryAttempts,
  readWindow,
} from '../../src/storage/run/window.ts'
import { markStarted } from '../../src/storage/settle.ts'
import { expireLease, NO_WAKE_UPS } from './races.ts'
import type { Random } from './random.ts'
import { answer, bringHome, EXTERNAL, type Sent, STEPPED, type Storm, TRANSACTIONAL } from './storm-actors.ts'

const WINDOW = 4
const STEPS_MAX = 10
const SEND_BY_MS = 1_000
const RUNNABLE: RunnableType[] = [EXTERNAL, STEPPED, TRANSACTIONAL].map(({ name, version }) => ({
  name,
  version,
  leaseMs: 30_000,
  windowMax: WINDOW,
  compensates: false,
  codeVersion: 'c1',
}))

/** One shard from claim to finish, or to the crash of its worker. */
export const workOnce = async (storm: Storm, random: Random): Promise<void> => {
  const lease = await claim(storm)
  if (!lease) {
    await sleep(4)
    return
  }
  storm.held.add(lease)
  try {
    await recover(storm, lease)
    if (lease.stopRequested === null) {
      await storm.database.query((connection) => markStarted(connection, lease.tenantId, lease.operationId))
    }
    const lives =
      lease.type === TRANSACTIONAL.name
        ? await runBatches(storm, lease, random)
        : await runExternal(storm, lease, random)
    if (!lives) {
      storm.figures.crashes++
      if (random.once(2)) await expireLease(storm.database, lease)
      return
    }
    const finished = await finishShard(storm.database, lease)
    if (finished?.state === 'done') {
      await settleOperation({ database: storm.database, wakeUps: NO_WAKE_UPS }, lease.tenantId, lease.operationId)
    }
  } finally {
    storm.held.delete(lease)
  }
}

const claim = ({ database, figures }: Storm): Promise<ClaimedShard | undefined> =>
  database.query(async (connection) => {
    const workerId = randomUUID()
    const [expired] = await claimExpiredShards(connection, { workerId, types: RUNNABLE, limit: 1 })
    if (expired) figures.takeovers++
    if (expired) return expired
    const { shards } = await claimReadyShards(connection, {
      workerId,
      types: RUNNABLE,
      limit: 1,
      perTenant: 1,
      afterTenant: 0,
    })
    return shards[0]
  })

const recover = async (storm: Storm, lease: ClaimedShard): Promise<void> => {
  const orphans = await storm.database.query((connection) => readOrphanedIntents(connection, lease, 100))
  if (orphans.length === 0) return
  await convergeEvidence({ database: storm.database, wakeUps: NO_WAKE_UPS }, lease, {
    source: 'recovery',
    epoch: lease.epoch,
    workerId: lease.workerId,
    actor: null,
    codeVersion: 'c1',
    lookupAfterMs: 0,
    reports: orphans.map((orphan) =>
      report(orphan, { effect: 'uncertain', item: 'uncertain', reasonCode: 'WORKER_LOST' }),
    ),
  })
}

/** False: the worker dies here, with what it has in flight. */
const runExternal = async (storm: Storm, lease: ClaimedShard, random: Random): Promise<boolean> => {
  const { database, figures } = storm
  let cursor = lease.cursor
  let inFlight: Sent[] = []
  const write = async (sent: Sent[]) =>
    bringHome(
      storm,
      lease,
      sent.map((one) => answer(EXTERNAL, one, random)),
    )

  for (let step = 0; step < STEPS_MAX; step++) {
    let idle = true
    if (cursor < lease.toOrd) {
      const to = Math.min(cursor + WINDOW, lease.toOrd)
      const items = await database.query((connection) => readWindow(connection, lease, cursor, to))
      // the next window is claimed while this one is written
      const [won] = await Promise.all([
        database.query((connection) => claimIntents(connection, lease, { from: cursor, to, sendByMs: SEND_BY_MS })),
        write(inFlight),
      ])
      inFlight = []
      if (!won) break
      figures.windows++
      idle = false
      cursor = to
      inFlight = items
        .filter((item) => won.has(item.ord))
        .map((item) => ({ ...item, send: 1, attempt: 1, resend: false }))
    }
    const due = await database.query((connection) => readDueRetries(connection, lease, WINDOW))
    if (due.length > 0) {
      const won = await claimRetries(database, lease, due, { sendByMs: SEND_BY_MS, resendWithinMs: 3_600_000 })
      if (!won) break
      figures.retries += won.length
      idle = false
      if (won.length < due.length) figures.explained += await explainKnownKeys(database, lease, due, 'c1')
      const items = await database.query((connection) =>
        readItems(
          connection,
          lease,
          won.map(({ ord }) => ord),
        ),
      )
      const keys = new Map(items.map((item) => [item.ord, item]))
      await write(inFlight)
      inFlight = won.map((retry) => {
        const item = keys.get(retry.ord)
        if (!item) throw new Error('an item is missing')
        return { ...item, ...retry }
      })
    }
    if (random.once(30)) await sleep(random.below(12)) // may lose the lease
    if (random.once(14)) {
      for (const sent of inFlight)
        if (random.once(2)) storm.late.push({ lease, report: answer(EXTERNAL, sent, random) })
      return false
    }
    if (idle) break
  }
  await write(inFlight)
  return true
}

class FenceLost extends Error {}
class Crash extends Error {}

type BatchItem = RunnableItem & BatchAttempt
type Batch = BatchOf<BatchItem>

const runBatches = async (storm: Storm, lease: ClaimedShard, random: Random): Promise<boolean> => {
  let cursor = lease.cursor
  for (let step = 0; step < STEPS_MAX; step++) {
    const batch = (await dueBatch(storm, lease)) ?? (await nextBatch(storm, lease, cursor))
    if (!batch) return true
    try {
      await runBatch(storm, lease, batch, random, batch.range !== null && random.once(2))
      storm.figures.batches++
      cursor = batch.range?.to ?? cursor
    } catch (error) {
      if (!(error instanceof FenceLost || error instanceof Crash)) throw error
      storm.figures.batchesRolledBack++
      return error instanceof FenceLost
    }
  }
  return true
}

const dueBatch = async ({ database, figures }: Storm, lease: ClaimedShard): Promise<Batch | null> => {
  const ords = await database.query((connection) => readDueRetries(connection, lease, WINDOW))
  if (ords.length === 0) return null
  figures.explained += await explainKnownKeys(database, lease, ords, 'c1')
  const attempts = await database.query((connection) => readRetryAttempts(connection, lease, ords))
  const items = await database.query((connection) => readItems(connection, lease, [...attempts.keys()]))
  if (items.length === 0) return null
  return { items: items.map((item) => ({ ...item, attempt: attempts.get(item.ord) ?? 1 })), range: null }
}

const nextBatch = async ({ database }: Storm, lease: ClaimedShard, cursor: number): Promise<Batch | null> => {
  if (cursor >= lease.toOrd) return null
  const to = Math.min(cursor + WINDOW, lease.toOrd)
  const items = await database.query((connection) => readWindow(connection, lease, cursor, to))
  return { items: items.map((item) => ({ ...item, attempt: 1 })), range: { from: cursor, to } }
}

const runBatch = async (
  storm: Storm,
  lease: ClaimedShard,
  batch: Batch,
  random: Random,
  asNew: boolean,
): Promise<void> => {
  try {
    await runTransaction(storm, lease, batch, random, asNew)
  } catch (error) {
    if (!(error instanceof KeyKnown)) throw error
    await runTransaction(storm, lease, batch, random, false)
  }
}

const runTransaction = (
  storm: Storm,
  lease: ClaimedShard,
  { items, range }: Batch,
  random: Random,
  asNew: boolean,
): Promise<void> =>
  storm.database.transaction(async ({ sql }) => {
    const lost = await (asNew && range
      ? takeNewEffects(sql, lease, range)
      : takeBatchEffects(sql, lease, { items, range }))
    // as a rule nothing is to be told of a batch; of some all kinds of things
    const plain = random.once(2)
    if (random.once(15)) await sleep(random.below(8))
    if (random.once(25)) throw new Crash()
    const committed = await commitBatch(sql, lease, {
      range,
      items,
      outcomes: items.filter((item) => !lost.has(item.ord)).map((item) => batchOutcome(item, plain, random)),
      lost,
      codeVersion: 'c1',
    })
    if (!committed) throw new FenceLost()
  })

const batchOutcome = (item: BatchItem, plain: boolean, random: Random): BatchOutcome => {
  const done = {
    ord: item.ord,
    failureClass: null,
    reasonCode: null,
    message: null,
    effectRef: null,
    retryMs: null,
    fingerprint: null,
  }
  if (plain) return { ...done, item: 'applied' }
  const draw = random.below(12)
  if (draw === 0) return { ...done, item: 'skipped', reasonCode: 'ALREADY_SO' }
  if (draw > 3) return { ...done, item: 'applied', effectRef: random.once(2) ? 'ref' : null }
  const failure = {
    failureClass:
      draw === 1 ? random.pick(['validation_rejected', 'conflict', 'policy_denied'] as const) : ('transient' as const),
    reasonCode: 'R',
    message: null,
  }
  return { ...done, item: 'failed', ...failure, ...failureFate(TRANSACTIONAL, failure, item) }
}
