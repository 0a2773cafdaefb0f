/** The protocol of a worker that holds a shard, one step at a time (src/engine/run.ts, external.ts, transactional.ts). */
import { sentReport, unsentReport } from '../../src/services/outcome-reports.ts'
import { batchSteps } from './batch-steps.ts'
import { agree } from './command.ts'
import type { Behaviour } from './provider.ts'
import {
  claimRetries,
  claimWindow,
  dueItems,
  explainKnownKeys,
  explainOrphans,
  markStarted,
  placeOf,
} from './rules-claim.ts'
import { bringHome } from './rules-evidence.ts'
import * as real from './system-worker.ts'
import { finishes, mayClaim, maySend, type WorkerStep } from './worker-step.ts'
import { type Flavour, type Held, keyOf, OUTSTANDING_MAX, type Run, stepsOf, type World } from './world.ts'

const explains: WorkerStep = {
  async take(world, system, run) {
    await real.explainOrphans(system, run, placeOf(world, run).operation.type)
    explainOrphans(world, run)
    run.phase = 'explained'
    return 'explains what the one before left'
  },
}

const starts: WorkerStep = {
  async take(world, system, run) {
    run.phase = 'running'
    if (run.stop !== null) return 'sees a stop'
    await real.start(system, run)
    markStarted(world, run)
    return 'starts'
  },
}

const claimsWindow: WorkerStep = {
  async take(world, system, run, { room }) {
    const { operation, shard } = placeOf(world, run)
    const to = Math.min(run.cursor + Math.min(room, OUTSTANDING_MAX - run.held.length), shard.toOrd)
    const won = await real.claimWindow(system, run, operation.flavour, to)
    claimWindow(world, run, to, won)
    if (won === null) {
      run.closed = true
      return 'is refused a window'
    }
    const step = stepsOf(operation.flavour)[0] ?? ''
    for (const item of operation.items.slice(run.cursor, to)) {
      if (!won.has(item.ord)) continue
      const claimed = { ord: item.ord, key: item.key, step, effectKey: keyOf(item, step) }
      run.held.push({ ...claimed, send: 1, attempt: 1, resend: false, sendByPassed: false, answer: null })
    }
    const told = `claims [${run.cursor},${to}) and wins ${won.size}`
    run.cursor = to
    return told
  },
}

const claimsRetries: WorkerStep = {
  async take(world, system, run, { room }) {
    const place = placeOf(world, run)
    const due = await real.readDue(system, run)
    agree(
      'waiting items are due',
      [...due].sort(),
      dueItems(place)
        .map(({ ord }) => ord)
        .sort(),
    )
    const ords = due.slice(0, Math.min(room, OUTSTANDING_MAX - run.held.length))
    const won = await real.claimDue(system, run, ords)
    const expected = claimRetries(world, run, ords)
    const told = won && [...won].sort((a, b) => a.ord - b.ord)
    agree('retries are won', told?.map(retryText), expected?.map(retryText))
    if (expected === null) {
      run.closed = true
      return 'is refused retries'
    }
    if (expected.length < ords.length) explainKnownKeys(world, run, ords)
    for (const retry of expected) {
      const { key } = place.operation.items[retry.ord] ?? { key: '' }
      run.held.push({ ...retry, key, sendByPassed: false, answer: null })
    }
    return `asks for the waiting items ${ords.join(' and ')} and wins ${expected.length}`
  },
}

const retryText = (retry: {
  ord: number
  step: string
  effectKey: string
  send: number
  attempt: number
  resend: boolean
}) => `${retry.ord} ${retry.step} ${retry.effectKey} &${retry.send} #${retry.attempt} ${retry.resend}`

/** One call; none where an answer is known, or the time has passed in which the send could begin. */
export const sendHeld = (world: World, flavour: Flavour, held: Held, behaviour: Behaviour): void => {
  if (held.answer !== null) return
  held.answer = held.sendByPassed ? 'unsent' : world.provider.call(held.effectKey, behaviour, flavour === 'idempotent')
}

const sends = (held: Held): WorkerStep => ({
  async take(world, _system, run, { behaviour }) {
    sendHeld(world, placeOf(world, run).operation.flavour, held, behaviour)
    return held.answer === 'unsent'
      ? `comes too late to send item ${held.ord}`
      : `sends item ${held.ord}: the provider ${behaviour}`
  },
})

const givesBack: WorkerStep = {
  async take(_world, _system, run) {
    const unsent = run.held.filter((held) => held.answer === null)
    for (const held of unsent) held.answer = 'unsent'
    return `sends nothing any more: ${unsent.length} go back`
  },
}

const bringsHome = (some: readonly Held[]): WorkerStep => ({
  async take(world, system, run) {
    const { operation, shard } = placeOf(world, run)
    const type = system.typeOf(operation.type)
    const reports = some.map((held) => {
      if (held.answer === null) throw new Error('there is no answer to bring home')
      return held.answer === 'unsent' ? unsentReport(held) : sentReport(type, held, held.answer)
    })
    const stop = shard.stop
    const converged = await real.tell(system, run, operation.type, 'worker', reports)
    const expected = bringHome(world, { ...run, source: 'worker', reports })
    const moved = [...converged.moved].sort()
    agree('outcomes are brought home', [moved, converged.mine], [[...expected.moved].sort(), expected.mine])
    agree('the stop that a worker is told', converged.stopRequested, stop)
    run.held = run.held.filter((held) => !some.includes(held))
    if (!converged.mine) run.lost = true
    if (stop !== null && run.stop !== 'cancel') run.stop = stop
    return `brings home ${some.map((held) => held.ord).join(' and ')}, ${moved.length} move${converged.mine ? '' : ', late'}`
  },
})

/** What the worker can do next. Never empty: whoever has nothing to do gives the shard back. */
export const stepsOfRun = (world: World, run: Run): WorkerStep[] => {
  if (run.phase === 'claimed' && run.epoch > 1) return [explains]
  if (run.phase !== 'running') return [starts]
  const place = placeOf(world, run)
  if (place.operation.flavour === 'batch') return batchSteps(world, run)
  const steps: WorkerStep[] = []
  const unsent = run.held.filter((held) => held.answer === null)
  const answered = run.held.filter((held) => held.answer !== null)
  const [first] = answered
  if (mayClaim(run) && run.held.length < OUTSTANDING_MAX) {
    if (run.cursor < place.shard.toOrd) steps.push(claimsWindow, claimsWindow, claimsWindow)
    if (dueItems(place).length > 0) steps.push(claimsRetries, claimsRetries, claimsRetries)
  }
  if (maySend(run)) steps.push(...unsent.map(sends), ...unsent.map(sends))
  else if (unsent.length > 0) steps.push(givesBack)
  if (first) steps.push(bringsHome([first]), bringsHome(answered))
  if (run.held.length === 0) steps.push(finishes)
  return steps
}
