/** A batch of a transactional type: effects, outcomes, retries and cursor in one commit, or nothing (storage/run/transactional.ts). */
import { claimDecision } from '../../src/domain/effect.ts'
import type { BatchOutcome } from '../../src/storage/run/transactional.ts'
import { dueItems, placeOf } from './rules-claim.ts'
import { bury, writtenClass } from './rules-evidence.ts'
import { type Item, itemOf, type Run, type World } from './world.ts'

export interface Batch {
  ords: readonly number[]
  /** Null: waiting items. */
  range: { from: number; to: number } | null
}

const isFree = (world: World, operationId: string, item: Item): boolean => {
  const effect = world.effects.get(item.effectKey) ?? null
  return claimDecision(effect, { operationId, ord: item.ord, isLastStep: true }) === 'claim'
}

/** Waiting items whose time has come and whose key is free. */
export const freeDueOrds = (world: World, run: Run): number[] => {
  const place = placeOf(world, run)
  return dueItems(place)
    .filter((item) => isFree(world, place.operation.id, item))
    .map((item) => item.ord)
}

/** Of items with one key the first takes it. */
export const winnersOf = (world: World, run: Run, { ords }: Batch): number[] => {
  const { operation } = placeOf(world, run)
  const items = ords.map((ord) => itemOf(operation, ord))
  return items
    .filter((item) => isFree(world, operation.id, item))
    .filter((item) => items.find((other) => other.effectKey === item.effectKey) === item)
    .map((item) => item.ord)
}

/** False: the fence did not hold, and nothing has happened. */
export const commit = (world: World, run: Run, batch: Batch, outcomes: readonly BatchOutcome[]): boolean => {
  const { operation, shard } = placeOf(world, run)
  const isMine = shard.state === 'leased' && shard.epoch === run.epoch
  if (!isMine || shard.stop !== null || (batch.range && shard.cursor !== batch.range.from)) return false
  for (const outcome of outcomes) {
    const item = itemOf(operation, outcome.ord)
    const { effectKey } = item
    const attempt = item.retry?.attempt ?? 1
    const failureClass = writtenClass(world, operation.id, { effectKey, ...outcome })
    world.effects.set(effectKey, {
      key: effectKey,
      state: outcome.item === 'failed' ? 'absent' : 'applied',
      send: (world.effects.get(effectKey)?.send ?? 0) + 1,
      operationId: operation.id,
      shard: shard.index,
      ord: item.ord,
      step: '',
      attempt,
      epoch: run.epoch,
      sendByPassed: true,
    })
    item.entries.push({
      step: '',
      attempt,
      state: outcome.item,
      failureClass,
      reasonCode: outcome.reasonCode,
      send: null,
      source: 'worker',
    })
    item.retry = outcome.retryMs === null ? null : { step: '', attempt: attempt + 1, reason: 'failed', due: true }
    if (outcome.fingerprint !== null && failureClass !== null) {
      const { fingerprint } = outcome
      bury(world, { operationId: operation.id, ord: item.ord, effectKey, failureClass, fingerprint })
    }
  }
  if (batch.range) {
    const won = new Set(outcomes.map((outcome) => outcome.ord))
    for (const ord of batch.ords) {
      if (!won.has(ord)) itemOf(operation, ord).retry = { step: '', attempt: 1, reason: 'key_known', due: true }
    }
    shard.cursor = batch.range.to
  }
  return true
}
