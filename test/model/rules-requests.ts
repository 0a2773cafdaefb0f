/** What people ask for: submit, cancel, pause, resume, preflight, replay. */
import type { FailureClass } from '../../src/domain/failure.ts'
import { cancelDecision, isFinal, isSettled, pauseDecision, resumeDecision } from '../../src/domain/operation.ts'
import { DEFAULT_STOP_IF, isForceable, parseStopCondition, preflightVerdict } from '../../src/domain/replay.ts'
import { settleOperation } from './rules-settle.ts'
import {
  CONCURRENCY,
  countsOf,
  type Flavour,
  type Item,
  type Operation,
  operationOf,
  outcomeOf,
  type Preflight,
  type World,
} from './world.ts'

const PARALLELISM = 2

/** An operation as it was accepted: its shards are of equal length, and none is smaller than a window. */
export const accept = (
  world: World,
  accepted: { id: string; flavour: Flavour; type: string; replayOf: string | null },
  items: readonly Pick<Item, 'key' | 'effectKey'>[],
): void => {
  const shards = Math.max(1, Math.min(PARALLELISM, Math.ceil(items.length / CONCURRENCY)))
  const end = (index: number): number => Math.floor((items.length * (index + 1)) / shards)
  world.operations.push({
    ...accepted,
    status: 'pending',
    cancelled: false,
    paused: false,
    started: false,
    version: 0,
    seen: '',
    items: items.map(({ key, effectKey }, ord) => ({
      ord,
      key,
      effectKey,
      entries: [],
      retry: null,
      open: null,
      resolutions: [],
    })),
    shards: Array.from({ length: shards }, (_, index) => ({
      index,
      fromOrd: index === 0 ? 0 : end(index - 1),
      toOrd: end(index),
      cursor: index === 0 ? 0 : end(index - 1),
      state: 'ready',
      due: true,
      epoch: 0,
      expired: false,
      stop: null,
      stopSeen: false,
      appliedAfterCancel: 0,
    })),
  })
}

const stopShards = (operation: Operation, stop: 'pause' | 'cancel'): void => {
  for (const shard of operation.shards) {
    shard.stop = stop
    shard.stopSeen = shard.state !== 'leased'
    if (shard.state === 'ready') shard.state = 'done'
  }
}

/** `refused`: it is final already. A cancel that was asked for before is the same one. */
export const cancel = (world: World, operation: Operation): 'stored' | 'receipt' | 'refused' => {
  const decision = cancelDecision(operation.status, operation.cancelled)
  if (decision.kind !== 'stop') return decision.kind === 'receipt' ? 'receipt' : 'refused'
  operation.cancelled = true
  if (operation.status !== 'reconciliation_required') operation.status = 'cancel_requested'
  stopShards(operation, 'cancel')
  settleOperation(world, operation.id)
  return 'stored'
}

export const pause = (world: World, operation: Operation): 'stored' | 'receipt' | 'refused' => {
  const decision = pauseDecision(operation.status)
  if (decision.kind !== 'stop') return decision.kind === 'receipt' ? 'receipt' : 'refused'
  operation.paused = true
  operation.status = 'pause_requested'
  stopShards(operation, 'pause')
  settleOperation(world, operation.id)
  return 'stored'
}

/** Shards with work left are ready again at their cursor; one that is still leased runs on. */
export const resume = (world: World, operation: Operation): 'stored' | 'refused' => {
  if (resumeDecision(operation.status).kind !== 'resume') return 'refused'
  operation.paused = false
  operation.status = operation.started ? 'running' : 'pending'
  for (const shard of operation.shards) {
    shard.stop = null
    shard.stopSeen = false
    const hasWork =
      shard.cursor < shard.toOrd ||
      operation.items.slice(shard.fromOrd, shard.toOrd).some((item) => item.retry !== null)
    if (shard.state !== 'leased') shard.state = hasWork ? 'ready' : 'done'
    shard.due = true
  }
  settleOperation(world, operation.id)
  return 'stored'
}

const liveReplays = (world: World, operation: Operation): string[] =>
  world.operations.filter((one) => one.replayOf === operation.id && !isFinal(one.status)).map((one) => one.id)

/** The default scope is what may be retried and what is unprocessed; the wide one is all that did not succeed. */
const targetsOf = (operation: Operation, wide: boolean): Item[] =>
  operation.items.filter((item) => {
    const outcome = outcomeOf(item)
    if (outcome === null) return true
    return outcome.state === 'failed' && (wide || outcome.failureClass === 'transient')
  })

const factsOf = (world: World, operation: Operation, wide: boolean): string =>
  JSON.stringify([
    operation.version,
    wide,
    targetsOf(operation, wide).map((item) => item.ord),
    liveReplays(world, operation),
  ])

const isBug = (item: Item): boolean => (outcomeOf(item)?.failureClass as FailureClass | null) === 'bug_suspected'

/** What forbids a replay now. No call of these types was ever counted, so no rate can trip. */
export const blockedBy = (world: World, operation: Operation, wide: boolean): string[] => {
  const targets = targetsOf(operation, wide)
  const { uncertain } = countsOf(operation.items)
  return preflightVerdict({
    settled: isSettled(operation.status),
    replayInProgress: liveReplays(world, operation).length > 0,
    compensationInProgress: false,
    compensationLost: false,
    itemsPurged: false,
    replayTargets: targets.length,
    ambiguousEffectTargets: uncertain,
    unfixedBugTargets: targets.filter(isBug).length,
    stopIf: DEFAULT_STOP_IF.map((text) => ({
      condition: parseStopCondition(text)?.condition ?? text,
      actual: 0,
      tripped: text.startsWith('ambiguous') && uncertain > 0,
    })),
  }).blockedBy
}

export const recordPreflight = (world: World, operation: Operation, wide: boolean, id: string): void => {
  world.preflights.push({
    id,
    operationId: operation.id,
    wide,
    facts: factsOf(world, operation, wide),
    usedBy: null,
  })
}

/** What a replay with this preflight must come to: the one that it made before, a refusal, or a new operation. */
export const replayAnswer = (world: World, preflight: Preflight, forced: readonly string[]): string => {
  if (preflight.usedBy !== null) return `again ${preflight.usedBy}`
  const operation = operationOf(world, preflight.operationId)
  const blocked = blockedBy(world, operation, preflight.wide)
  const isOutdated = factsOf(world, operation, preflight.wide) !== preflight.facts
  if (isOutdated && !blocked.includes('replay-in-progress')) return 'preflight-outdated'
  const left = blocked.filter((code) => !(forced.includes(code) && isForceable(code)))
  return left.length > 0 ? 'replay-blocked' : 'made'
}

/** A new operation over the targets, with their keys: what was applied since becomes `skipped`. */
export const replay = (world: World, preflight: Preflight, id: string): void => {
  const { flavour, type, id: replayOf, ...operation } = operationOf(world, preflight.operationId)
  accept(
    world,
    { id, flavour, type, replayOf },
    targetsOf({ ...operation, flavour, type, id: replayOf }, preflight.wide),
  )
  preflight.usedBy = id
}
