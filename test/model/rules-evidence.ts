/**
 * What becomes of an item when something is known of its effect: the rules of converge and of what stands beside it, in the
 * order in which they are told in storage/run/lease.ts (invariants A, C, F).
 */
import { evidenceDecision } from '../../src/domain/effect.ts'
import { EXHAUSTED_RUNS_MAX, type FailureClass } from '../../src/domain/failure.ts'
import type { EvidenceSource } from '../../src/domain/ledger.ts'
import type { Report } from '../../src/storage/run/evidence.ts'
import { settleOperation } from './rules-settle.ts'
import {
  type Case,
  type Effect,
  type Item,
  itemOf,
  nextStep,
  type Operation,
  operationOf,
  outcomeOf,
  type Shard,
  shardOf,
  type World,
} from './world.ts'

export interface Evidence {
  operationId: string
  shard: number
  source: Exclude<EvidenceSource, 'late_worker'>
  /** 0: it comes from no worker. */
  epoch: number
  reports: readonly Report[]
}

/** The class that is written: a key whose attempts ran out in enough operations with one cause is a suspected bug. */
export const writtenClass = (
  world: World,
  operationId: string,
  failure: { effectKey: string; failureClass: Report['failureClass']; fingerprint: string | null },
): FailureClass | null => {
  if (failure.failureClass !== 'transient' || failure.fingerprint === null) return failure.failureClass
  const others = world.deadLetters.filter(
    (letter) =>
      letter.operationId !== operationId &&
      letter.effectKey === failure.effectKey &&
      letter.fingerprint === failure.fingerprint,
  )
  return new Set(others.map((letter) => letter.operationId)).size >= EXHAUSTED_RUNS_MAX - 1
    ? 'bug_suspected'
    : failure.failureClass
}

export const bury = (world: World, letter: World['deadLetters'][number]): void => {
  const isThere = world.deadLetters.some((one) => one.operationId === letter.operationId && one.ord === letter.ord)
  if (!isThere) world.deadLetters.push(letter)
}

/** A case that holds its item back takes the place of one that does not; an item has one open case. */
export const openCase = (item: Item, opened: Case): void => {
  if (item.open === null) item.open = opened
  else if (item.open.cause === 'duplicate_suspected' || item.open.cause === 'contradiction') {
    item.open = { ...opened, id: item.open.id }
  }
}

const effectOf = (world: World, report: Report): Effect => {
  const effect = world.effects.get(report.effectKey)
  if (!effect) throw new Error(`the model has evidence for ${report.effectKey}, which nobody ever claimed`)
  return effect
}

const decide = (effect: Effect, report: Report, operationId: string) =>
  evidenceDecision({ effect, evidence: { to: report.effect, send: report.send, operationId } })

/** Answers with the ords that moved, and whether the reporting worker still held the lease. */
export const bringHome = (world: World, evidence: Evidence): { moved: number[]; mine: boolean } => {
  const operation = operationOf(world, evidence.operationId)
  const shard = shardOf(operation, evidence.shard)
  const mine = shard.state === 'leased' && shard.epoch === evidence.epoch
  const source = evidence.source === 'worker' && !mine ? 'late_worker' : evidence.source
  const waitingBefore = operation.items.filter((item) => item.retry !== null).length
  const moved = evidence.reports.filter((report) => {
    const effect = effectOf(world, report)
    return decide(effect, report, operation.id) === 'move' && effect.ord === report.ord
  })
  // each is judged by what stood before, as they are of one statement
  for (const report of moved) move(world, operation, shard, source, report)
  wake(operation, shard, moved, waitingBefore)
  if (moved.length < evidence.reports.length && source !== 'operator') {
    for (const report of evidence.reports) if (!moved.includes(report)) observe(world, operation, source, report)
  }
  if (moved.length > 0 && (evidence.source !== 'worker' || !mine)) settleOperation(world, operation.id)
  return { moved: moved.map((report) => report.ord), mine }
}

/** A shard that was done runs again for what waits now; one that is not leased is due at once for it. */
const wake = (operation: Operation, shard: Shard, moved: readonly Report[], waitingBefore: number): void => {
  const waits = moved.some((report) => itemOf(operation, report.ord).retry !== null)
  if (!waits || shard.state === 'leased') return
  const more = operation.items.filter((item) => item.retry !== null).length > waitingBefore
  if (shard.state === 'done' && more && shard.stop === null) shard.state = 'ready'
  shard.due = true
}

const move = (world: World, operation: Operation, shard: Shard, source: EvidenceSource, report: Report): void => {
  const effect = effectOf(world, report)
  const item = itemOf(operation, report.ord)
  const was = effect.state
  const before = outcomeOf(item)
  const following = report.effect === 'applied' ? nextStep(operation.flavour, effect.step) : null
  const failureClass = writtenClass(world, operation.id, report)
  effect.state = report.effect
  if (source === 'worker' || source === 'late_worker') effect.sendByPassed = true
  const base = { step: effect.step, attempt: effect.attempt, send: effect.send, source }

  if (following !== null) {
    // late evidence sets nothing going that had failed for good
    const goesOn = was !== 'absent' || item.retry !== null
    const due = before?.state === 'uncertain' || !goesOn
    item.entries.push({
      ...base,
      state: due ? 'failed' : null,
      failureClass: due ? 'transient' : null,
      reasonCode: due ? 'NEXT_STEP_DUE' : 'STEP_APPLIED',
    })
    item.retry = goesOn ? { step: following, attempt: 1, reason: 'next_step', due: true } : null
  } else {
    // never sent, but called uncertain by a takeover: that is taken back
    const tookBack = report.item === null && was === 'uncertain' && report.effect === 'absent'
    const state = tookBack ? 'failed' : report.item
    if (state !== null) {
      item.entries.push({
        ...base,
        state,
        failureClass:
          state === 'failed'
            ? tookBack
              ? 'transient'
              : failureClass
            : state === 'uncertain'
              ? 'ambiguous_effect'
              : null,
        reasonCode: tookBack ? 'NOT_SENT' : report.reasonCode,
      })
      if (state === 'applied' && before?.state !== 'applied' && shard.stop === 'cancel') shard.appliedAfterCancel++
    }
    const charged = state !== null && report.retry?.reason !== 'unsent'
    item.retry = report.retry && {
      step: effect.step,
      attempt: effect.attempt + (charged ? 1 : 0),
      reason: report.retry.reason,
      due: true,
    }
  }
  if (report.effect === 'uncertain') {
    openCase(item, {
      id: null,
      cause: source === 'recovery' ? 'worker_lost' : 'send_outcome_unknown',
      step: effect.step,
      effectKey: effect.key,
      send: effect.send,
    })
  } else if (item.open?.cause === 'send_outcome_unknown' || item.open?.cause === 'worker_lost') {
    item.open = null
    item.resolutions.push(report.effect === 'applied' ? 'applied' : 'not_applied')
  }
  if (report.fingerprint !== null && failureClass !== null) {
    bury(world, {
      operationId: operation.id,
      ord: item.ord,
      effectKey: effect.key,
      failureClass,
      fingerprint: report.fingerprint,
    })
  }
}

/** Evidence that moves nothing and is not known: it is kept, opens a case, and overwrites nothing. */
const observe = (world: World, operation: Operation, source: EvidenceSource, report: Report): void => {
  const effect = effectOf(world, report)
  const decision = decide(effect, report, operation.id)
  const isDouble = decision === 'older-send' && report.effect === 'applied'
  if (decision !== 'contradiction' && !isDouble) return
  const item = itemOf(operation, report.ord)
  const last = item.entries.at(-1)
  if (!last) throw new Error('an observation of an item without entries has nothing to stand on')
  item.entries.push({
    step: effect.step,
    attempt: last.attempt,
    state: null,
    failureClass: null,
    reasonCode: isDouble ? 'EVIDENCE_FOR_EARLIER_SEND' : 'CONTRADICTS_EARLIER_EVIDENCE',
    send: report.send,
    source,
  })
  if (item.open === null) {
    item.open = {
      id: null,
      cause: isDouble ? 'duplicate_suspected' : 'contradiction',
      step: effect.step,
      effectKey: report.effectKey,
      send: report.send,
    }
  }
}
