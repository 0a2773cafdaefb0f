/** How what is uncertain is explained: by a lookup, by a person, or by the effect of another item. */
import type { OperationType } from '../../src/domain/operation-type.ts'
import { decideLookup, decideResolution, mayResend } from '../../src/domain/reconciliation.ts'
import { absenceReport } from '../../src/services/absence-report.ts'
import { report } from '../../src/services/evidence-reports.ts'
import type { Report } from '../../src/storage/run/evidence.ts'
import type { LookupAnswer } from './provider.ts'
import { bringHome } from './rules-evidence.ts'
import { settleOperation } from './rules-settle.ts'
import {
  type Case,
  type Effect,
  type Item,
  nextStep,
  type Operation,
  operationOf,
  outcomeOf,
  type Shard,
  shardOf,
  type World,
} from './world.ts'

export interface OpenDoubt {
  operation: Operation
  shard: Shard
  item: Item
  open: Case
}

export const openCases = (world: World): OpenDoubt[] =>
  world.operations.flatMap((operation) =>
    operation.items.flatMap((item) => {
      const shard = operation.shards.find(({ fromOrd, toOrd }) => fromOrd <= item.ord && item.ord < toOrd)
      return item.open && shard ? [{ operation, shard, item, open: item.open }] : []
    }),
  )

/** Its own effect is in doubt; of the others nobody has to be asked. */
export const canBeLookedUp = ({ open }: OpenDoubt): boolean =>
  open.cause === 'send_outcome_unknown' || open.cause === 'worker_lost'

/** What a truthful provider says when it is asked about a case, and what that leads to. */
export const lookUp = (world: World, doubt: OpenDoubt, type: OperationType, answer: LookupAnswer): void => {
  const { operation, item, open } = doubt
  const effect = world.effects.get(open.effectKey)
  if (effect?.state !== 'uncertain' || effect.operationId !== operation.id || effect.ord !== item.ord) return
  const found = world.provider.lookUp(effect.key, answer)
  const decision = decideLookup({
    outcome: found.state,
    stable: effect.sendByPassed,
    onAbsent: type.onAbsent,
    attempt: effect.attempt,
    maxAttempts: type.retry.maxAttempts,
    cancelled: operation.cancelled,
    lookups: 1,
  })
  const evidenceRef = found.state === 'unknown' ? null : found.evidenceRef
  switch (decision.kind) {
    case 'applied':
      say(world, doubt, effect, 'lookup', { effect: 'applied', item: 'applied', evidenceRef })
      break
    case 'absent-retry':
    case 'absent-failed':
      say(world, doubt, effect, 'lookup', absenceReport(type, decision, { attempt: effect.attempt, evidenceRef }))
      break
    case 'wait':
      if (decision.reason === 'unknown' && allowsResend(type, operation, effect)) queueResend(world, doubt, effect)
      break
    case 'by-hand':
      break
  }
}

const allowsResend = (type: OperationType, { cancelled }: Operation, { attempt }: Effect): boolean =>
  mayResend({
    providerIdempotentMs: type.providerIdempotentMs,
    ageMs: 0,
    attempt,
    maxAttempts: type.retry.maxAttempts,
    cancelled,
  })

/** The one repeat without evidence waits like a retry; a stop keeps it from being queued. */
const queueResend = (world: World, { operation, shard, item }: OpenDoubt, effect: Effect): void => {
  if (shard.stop !== null || item.retry !== null) return
  item.retry = { step: effect.step, attempt: effect.attempt + 1, reason: 'idempotent_resend', due: true }
  if (shard.state === 'done') shard.state = 'ready'
  shard.due = true
  settleOperation(world, operation.id)
}

const say = (
  world: World,
  { operation, shard }: Pick<OpenDoubt, 'operation' | 'shard'>,
  effect: Effect,
  source: 'lookup' | 'operator',
  said: Pick<Report, 'effect' | 'item'> & Partial<Report>,
): boolean => {
  const sent = { ord: effect.ord, effectKey: effect.key, send: effect.send }
  const evidence = { operationId: operation.id, shard: shard.index, source, epoch: 0, reports: [report(sent, said)] }
  return bringHome(world, evidence).moved.length > 0
}

export interface Verdict {
  resolution: 'applied' | 'not_applied'
  retry: boolean
}

const decided = (verdict: Verdict, cancelled: boolean): Pick<Report, 'effect' | 'item'> & Partial<Report> => {
  const decision = decideResolution({ ...verdict, cancelled })
  if (decision.kind === 'applied') return { effect: 'applied', item: 'applied' }
  return {
    effect: 'absent',
    item: 'failed',
    failureClass: 'transient',
    reasonCode: 'RESOLVED_NOT_APPLIED',
    retry: decision.kind === 'absent-retry' ? { afterMs: 0, reason: 'confirmed_absent' } : null,
  }
}

/** `resend-in-progress`: the effect is in flight again; `case-already-resolved`: it says something else by now. */
export type Resolved = 'done' | 'resend-in-progress' | 'case-already-resolved'

export const resolve = (world: World, doubt: OpenDoubt, verdict: Verdict): Resolved => {
  const { operation, item, open } = doubt
  const effect = world.effects.get(open.effectKey)
  if (open.cause === 'duplicate_suspected' || open.cause === 'contradiction') {
    item.resolutions.push(verdict.resolution)
    item.open = null
    return 'done'
  }
  const doneIf = (moved: boolean): Resolved => (moved ? 'done' : 'resend-in-progress')
  if (effect?.state === 'uncertain') world.provider.claim(effect.key, verdict.resolution)
  if (open.cause !== 'in_doubt_elsewhere') {
    if (effect?.state !== 'uncertain') return 'resend-in-progress'
    return doneIf(say(world, doubt, effect, 'operator', decided(verdict, operation.cancelled)))
  }
  let moved = false
  if (effect?.state === 'uncertain') {
    const owner = operationOf(world, effect.operationId)
    // the evidence belongs to the other item; this person did not ask for its retry
    moved = say(
      world,
      { operation: owner, shard: shardOf(owner, effect.shard) },
      effect,
      'operator',
      decided(verdict, true),
    )
  }
  if (!closeDoubts(world, [doubt])) return doneIf(moved)
  settleOperation(world, operation.id)
  return moved || item.resolutions.at(-1) === verdict.resolution ? 'done' : 'case-already-resolved'
}

const isExplained = (world: World, { open }: OpenDoubt): boolean => {
  const state = world.effects.get(open.effectKey)?.state ?? 'absent'
  return open.cause === 'in_doubt_elsewhere' && (state === 'applied' || state === 'absent' || state === 'compensated')
}

/** From the effect of the other item: applied → `skipped` or on to the next step; absent → a try of its own. */
const closeDoubts = (world: World, doubts: readonly OpenDoubt[]): boolean => {
  const explained = doubts.filter((doubt) => isExplained(world, doubt))
  for (const { operation, shard, item, open } of explained) {
    const effect = world.effects.get(open.effectKey)
    const following = effect?.state === 'applied' ? nextStep(operation.flavour, open.step) : null
    const skips = effect?.state === 'applied' && following === null
    const attempt = outcomeOf(item)?.attempt ?? 1
    item.entries.push({
      step: open.step,
      attempt,
      state: skips ? 'skipped' : 'failed',
      failureClass: skips ? null : 'transient',
      reasonCode: skips ? 'EFFECT_ALREADY_APPLIED' : following === null ? 'FREED_ELSEWHERE' : 'NEXT_STEP_DUE',
      send: effect?.send ?? null,
      source: 'lookup',
    })
    item.resolutions.push(effect?.state === 'applied' ? 'applied' : 'not_applied')
    item.open = null
    if (skips) continue
    item.retry =
      following === null
        ? { step: open.step, attempt, reason: 'freed', due: true }
        : { step: following, attempt: 1, reason: 'next_step', due: true }
    if (shard.state !== 'done') continue
    shard.due = true
    if (shard.stop === null) shard.state = 'ready'
  }
  return explained.length > 0
}

/** The reconciler's other half: it goes shard by shard, and settles behind each. */
export const closeExplainedDoubts = (world: World): void => {
  const doubts = openCases(world).filter((doubt) => isExplained(world, doubt))
  for (const shard of new Set(doubts.map((doubt) => doubt.shard))) {
    const its = doubts.filter((doubt) => doubt.shard === shard)
    if (closeDoubts(world, its)) settleOperation(world, its[0]?.operation.id ?? '')
  }
}
