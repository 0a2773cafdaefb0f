/** The steps of a worker that runs a transactional shard: one batch, one commit. */
import { failureFate } from '../../src/services/outcome-reports.ts'
import type { BatchOutcome } from '../../src/storage/run/transactional.ts'
import { agree } from './command.ts'
import { type Behaviour, outcomeOfBehaviour } from './provider.ts'
import { commit, freeDueOrds, winnersOf } from './rules-batch.ts'
import { dueItems, explainKnownKeys, placeOf } from './rules-claim.ts'
import type { System } from './system.ts'
import * as real from './system-worker.ts'
import { type Choice, finishes, mayClaim, type WorkerStep } from './worker-step.ts'
import { itemOf, type Run, type World } from './world.ts'

/** The first item of a batch meets what was chosen, the others are done: a handler decides at once. */
const outcomesOf = (
  system: System,
  typeName: string,
  won: readonly real.BatchItem[],
  behaviour: Behaviour,
): BatchOutcome[] =>
  won.map((item, index) => {
    const outcome = outcomeOfBehaviour(index === 0 ? behaviour : 'does it')
    const done: BatchOutcome = {
      ord: item.ord,
      item: 'applied',
      failureClass: null,
      reasonCode: null,
      message: null,
      effectRef: null,
      retryMs: null,
      fingerprint: null,
    }
    if (outcome.state === 'skipped') return { ...done, item: 'skipped', reasonCode: outcome.reasonCode }
    if (outcome.state !== 'failed') return done
    const failure = {
      failureClass: outcome.failureClass,
      reasonCode: outcome.reasonCode ?? null,
      message: outcome.message ?? null,
    }
    return { ...done, item: 'failed', ...failure, ...failureFate(system.typeOf(typeName), failure, item) }
  })

const run = async (
  world: World,
  system: System,
  held: Run,
  batch: { items: real.BatchItem[]; range: { from: number; to: number } | null },
  { behaviour, dies }: Choice,
): Promise<string> => {
  const { operation, shard } = placeOf(world, held)
  let won: number[] = []
  const outcomes = await real.runBatch(system, held, { ...batch, dies }, (winners) => {
    won = winners.map(({ ord }) => ord)
    return outcomesOf(system, operation.type, winners, behaviour)
  })
  const ords = batch.items.map(({ ord }) => ord)
  agree('a batch wins its keys', won, winnersOf(world, held, { ords, range: batch.range }))
  if (dies) return `dies in a batch of ${ords.join(' and ')}`
  const keys = (outcomes ?? []).map(({ ord }) => itemOf(operation, ord).effectKey)
  const committed = commit(world, held, { ords, range: batch.range }, outcomes ?? [])
  agree('a batch is committed', outcomes !== null, committed)
  if (!committed) {
    // only the database tells whether it was a stop or a loss
    held.stop = shard.stop
    held.lost = shard.epoch !== held.epoch || shard.state !== 'leased'
    return `is rolled back with ${ords.join(' and ')}`
  }
  for (const [index, outcome] of (outcomes ?? []).entries()) {
    if (outcome.item === 'applied') world.provider.commit(keys[index] ?? '', { state: 'applied' })
    if (outcome.item === 'skipped') world.provider.commit(keys[index] ?? '', { state: 'skipped', reasonCode: 'SO' })
  }
  if (batch.range) held.cursor = batch.range.to
  return `commits ${ords.join(' and ')}: the first one ${behaviour}`
}

const runsWindow: WorkerStep = {
  async take(world, system, held, choice) {
    const to = Math.min(held.cursor + choice.room, placeOf(world, held).shard.toOrd)
    const items = await real.windowBatch(system, held, to)
    return run(world, system, held, { items, range: { from: held.cursor, to } }, choice)
  },
}

const runsDue: WorkerStep = {
  async take(world, system, held, choice) {
    const items = await real.dueBatch(system, held)
    explainKnownKeys(
      world,
      held,
      dueItems(placeOf(world, held)).map(({ ord }) => ord),
    )
    agree(
      'waiting items are free',
      items.map(({ ord }) => ord),
      freeDueOrds(world, held),
    )
    if (items.length === 0) return 'finds no waiting item free'
    return run(world, system, held, { items, range: null }, choice)
  },
}

export const batchSteps = (world: World, held: Run): WorkerStep[] => {
  const place = placeOf(world, held)
  if (!mayClaim(held)) return [finishes]
  const steps: WorkerStep[] = []
  if (held.cursor < place.shard.toOrd) steps.push(runsWindow, runsWindow, runsWindow)
  if (dueItems(place).length > 0) steps.push(runsDue, runsDue)
  return [...steps, finishes]
}
