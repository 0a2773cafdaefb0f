/** How work is taken in hand and given back: leases, windows, retries, and keys that another item has (lease.ts, A to D). */
import { claimDecision } from '../../src/domain/effect.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { bringHome, openCase } from './rules-evidence.ts'
import { settleOperation } from './rules-settle.ts'
import {
  type Effect,
  type Item,
  intentsOf,
  itemsOf,
  keyOf,
  nextStep,
  type Operation,
  operationOf,
  type Retry,
  type Run,
  type Shard,
  shardOf,
  stepsOf,
  type World,
} from './world.ts'

export interface Place {
  operation: Operation
  shard: Shard
}

const places = (world: World): Place[] =>
  world.operations.flatMap((operation) => operation.shards.map((shard) => ({ operation, shard })))

export const expiredPlaces = (world: World): Place[] =>
  places(world).filter(({ shard }) => shard.state === 'leased' && shard.expired)

export const readyPlaces = (world: World): Place[] =>
  places(world).filter(({ shard }) => shard.state === 'ready' && shard.due)

export const placeOf = (world: World, run: Pick<Run, 'operationId' | 'shard'>): Place => {
  const operation = operationOf(world, run.operationId)
  return { operation, shard: shardOf(operation, run.shard) }
}

/** Every claim has a newer epoch. A takeover of a stopped shard has seen the stop. */
export const claimShard = ({ operation, shard }: Place, workerId: string): Run => {
  if (shard.state === 'leased') shard.stopSeen = shard.stop !== null
  shard.state = 'leased'
  shard.epoch++
  shard.expired = false
  return {
    workerId,
    operationId: operation.id,
    shard: shard.index,
    epoch: shard.epoch,
    cursor: shard.cursor,
    phase: 'claimed',
    held: [],
    stop: shard.stop,
    lost: false,
    over: false,
    closed: false,
  }
}

const isMine = (shard: Shard, run: Run): boolean => shard.state === 'leased' && shard.epoch === run.epoch

/** Of an earlier holder, in the order of their keys: nobody knows whether they were sent. */
export const orphansOf = (world: World, run: Run): Effect[] => {
  const { operation, shard } = placeOf(world, run)
  return intentsOf(world, operation, shard)
    .filter((effect) => effect.epoch < run.epoch)
    .sort((a, b) => (a.key < b.key ? -1 : 1))
}

export const explainOrphans = (world: World, run: Run): void => {
  const orphans = orphansOf(world, run)
  if (orphans.length === 0) return
  bringHome(world, {
    ...run,
    source: 'recovery',
    reports: orphans.map((orphan) =>
      report(
        { ord: orphan.ord, effectKey: orphan.key, send: orphan.send },
        { effect: 'uncertain', item: 'uncertain', reasonCode: 'WORKER_LOST' },
      ),
    ),
  })
}

export const markStarted = (world: World, run: Run): void => {
  const { operation } = placeOf(world, run)
  if (operation.status !== 'pending') return
  operation.status = 'running'
  operation.started = true
}

const intent = (
  { operation, shard }: Place,
  item: Item,
  from: { step: string; attempt: number; send: number },
): Effect => ({
  key: keyOf(item, from.step),
  state: 'intent',
  send: from.send,
  operationId: operation.id,
  shard: shard.index,
  ord: item.ord,
  step: from.step,
  attempt: from.attempt,
  epoch: shard.epoch,
  sendByPassed: false,
})

/** Of items that want the same free key one gets it; which one is nobody's promise, so the system says it: `won`. */
export const claimWindow = (world: World, run: Run, to: number, won: ReadonlySet<number> | null): void => {
  const place = placeOf(world, run)
  const { operation, shard } = place
  const mayClaim = isMine(shard, run) && shard.stop === null && shard.cursor === run.cursor
  if (won === null || !mayClaim) {
    if ((won === null) === mayClaim) throw new Error(`the fence should ${mayClaim ? '' : 'not '}have held`)
    return
  }
  const step = stepsOf(operation.flavour)[0] ?? ''
  const items = operation.items.slice(run.cursor, to)
  for (const key of new Set(items.map((item) => keyOf(item, step)))) {
    const wanting = items.filter((item) => keyOf(item, step) === key)
    const winners = wanting.filter((item) => won.has(item.ord)).length
    if (winners !== (world.effects.has(key) ? 0 : 1)) throw new Error(`${winners} items have won ${key}`)
  }
  for (const item of items) {
    if (won.has(item.ord)) world.effects.set(keyOf(item, step), intent(place, item, { step, attempt: 1, send: 1 }))
    else item.retry = { step, attempt: 1, reason: 'key_known', due: true }
  }
  shard.cursor = to
}

/** Waiting items whose time has come. */
export const dueItems = ({ operation, shard }: Place): Item[] =>
  itemsOf(operation, shard).filter((item) => item.retry?.due)

/** May this item, which waits, be sent? A resend alone may follow an unknown outcome, and only its own. */
const isFree = (world: World, operation: Operation, item: Item, retry: Retry): boolean => {
  const effect = world.effects.get(keyOf(item, retry.step)) ?? null
  const decision = claimDecision(effect, {
    operationId: operation.id,
    ord: item.ord,
    isLastStep: nextStep(operation.flavour, retry.step) === null,
  })
  return (
    decision === 'claim' ||
    (decision === 'known' && effect?.state === 'uncertain' && retry.reason === 'idempotent_resend')
  )
}

export interface WonRetry {
  ord: number
  step: string
  effectKey: string
  send: number
  attempt: number
  resend: boolean
}

/** Null: the fence did not hold. Of waiting items with one key the first is served. */
export const claimRetries = (world: World, run: Run, ords: readonly number[]): WonRetry[] | null => {
  const place = placeOf(world, run)
  const { operation, shard } = place
  if (!isMine(shard, run) || shard.stop !== null) return null
  const served = new Set<string>()
  const won: WonRetry[] = []
  for (const item of dueItems(place).filter(({ ord }) => ords.includes(ord))) {
    const { retry } = item
    if (!retry || served.has(keyOf(item, retry.step))) continue
    const effectKey = keyOf(item, retry.step)
    served.add(effectKey)
    if (!isFree(world, operation, item, retry)) continue
    const send = (world.effects.get(effectKey)?.send ?? 0) + 1
    world.effects.set(effectKey, intent(place, item, { ...retry, send }))
    item.retry = null
    const resend = retry.reason === 'idempotent_resend'
    won.push({ ord: item.ord, step: retry.step, effectKey, send, attempt: retry.attempt, resend })
  }
  return won
}

/** What becomes of waiting items whose key is held by another: the table of `claimDecision`. */
export const explainKnownKeys = (world: World, run: Run, ords: readonly number[]): void => {
  const { operation, shard } = placeOf(world, run)
  if (!isMine(shard, run)) return
  for (const item of itemsOf(operation, shard).filter(({ ord }) => ords.includes(ord))) {
    const { retry } = item
    const effect = retry && world.effects.get(keyOf(item, retry.step))
    if (!retry || !effect) continue
    const following = nextStep(operation.flavour, retry.step)
    const base = { step: retry.step, attempt: retry.attempt, send: effect.send, source: 'worker' as const }
    const mine = { operationId: operation.id, ord: item.ord, isLastStep: following === null }
    switch (claimDecision(effect, mine)) {
      case 'claim':
        break
      case 'wait':
        retry.due = false
        break
      case 'known':
        // an own doubt waits for its resend; an own outcome ends the wait
        if (effect.state === 'applied') item.retry = null
        break
      case 'next-step':
        item.entries.push({ ...base, state: null, failureClass: null, reasonCode: 'STEP_ALREADY_APPLIED' })
        item.retry = { step: following ?? '', attempt: 1, reason: 'next_step', due: true }
        break
      case 'skip':
        item.entries.push({ ...base, state: 'skipped', failureClass: null, reasonCode: 'EFFECT_ALREADY_APPLIED' })
        item.retry = null
        break
      case 'in-doubt':
        item.entries.push({
          ...base,
          state: 'uncertain',
          failureClass: 'ambiguous_effect',
          reasonCode: 'IN_DOUBT_ELSEWHERE',
        })
        item.retry = null
        openCase(item, {
          id: null,
          cause: 'in_doubt_elsewhere',
          step: base.step,
          effectKey: effect.key,
          send: effect.send,
        })
    }
  }
}

/** `done` when it is stopped, or nothing is left and nothing waits. Refused while anything is in flight. */
export const finishShard = (world: World, run: Run): 'ready' | 'done' | null => {
  const place = placeOf(world, run)
  const { operation, shard } = place
  if (!isMine(shard, run) || intentsOf(world, operation, shard).length > 0) return null
  const waiting = itemsOf(operation, shard).filter((item) => item.retry !== null)
  const isDone = shard.stop !== null || (shard.cursor >= shard.toOrd && waiting.length === 0)
  shard.state = isDone ? 'done' : 'ready'
  shard.stopSeen = shard.stop !== null
  shard.due = shard.cursor < shard.toOrd || waiting.length === 0 || waiting.some((item) => item.retry?.due)
  if (isDone) settleOperation(world, operation.id)
  return shard.state
}

/** What a heartbeat brings about: the lease is renewed, or known to be lost; a stop is seen, and acknowledged. */
export const beat = (world: World, run: Run): void => {
  const { shard } = placeOf(world, run)
  if (!isMine(shard, run)) {
    run.lost = true
    return
  }
  shard.expired = false
  run.over = false
  run.stop = run.stop === 'cancel' ? 'cancel' : shard.stop
  if (shard.stop !== null && run.stop === shard.stop) shard.stopSeen = true
}
