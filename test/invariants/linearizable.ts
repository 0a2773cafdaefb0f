/**
 * Whether what clients were told of one operation can have been: is there one order of the calls, each at an instant between
 * its request and its answer, in which the public state machine (operation-spec.ts) gives every one of these answers?
 *
 * The search is Wing and Gong's, with a memo of (calls placed, state). A call whose answer shows the resource is two steps, as
 * the service stores first and reads afterwards. A call without an answer, or with a 5xx, may have happened at any later
 * instant, or never. Histories are cut where no answered call is open: what is left of the past there is a set of states.
 *
 * Two things keep it small. A step that changes nothing where the search stands is taken at once: whatever order exists with
 * it later, exists without it there. And of the reads that are left only those of the lowest version can be next.
 */
import { OPERATION_STATUSES } from '../../src/domain/operation.ts'
import { type Call, CREATING, isAnswered, type Outcome } from './history.ts'
import { moveAlone, NOTHING, nameOf, type State, States, type Step, takeStep } from './operation-spec.ts'
import type { Violation } from './violation.ts'

/** Placings tried in one cut of a history; what takes more is not decided, and said so. */
const STEPS_MAX = 20_000

interface Entry {
  call: Call
  step: Step
  from: number
  /** Infinity: it may be later than everything, or never. */
  until: number
  isOptional: boolean
  /** The index of the step of the same call that comes before. */
  after: number | null
}

/** Each operation that clients know of, on its own. */
export const checkLinearizable = (calls: readonly Call[]): Violation[] => {
  const ids = [...new Set(calls.flatMap((call) => (call.operationId === null ? [] : [call.operationId])))]
  return ids.flatMap((id) => checkOperation(id, concerning(id, calls)))
}

/** The calls about an operation, and those under its key of which nobody knows what became of them. */
const concerning = (id: string, calls: readonly Call[]): Call[] => {
  const key = calls.find((call) => call.operationId === id && CREATING.includes(call.kind) && call.key !== null)?.key
  return calls.filter(
    (call) => call.operationId === id || (key !== undefined && call.operationId === null && call.key === key),
  )
}

const checkOperation = (id: string, calls: readonly Call[]): Violation[] => {
  const stopsItself = calls.some((call) => call.stopsItself || call.kind === 'replay' || call.kind === 'compensate')
  const entries = calls.flatMap((call) => stepsOf(call)).sort((a, b) => a.from - b.from)
  const isKnownFromItsStart = calls.some((call) => CREATING.includes(call.kind))
  let frontier = new Map<string, Held>([
    ['', { taken: new Set(), states: new States(isKnownFromItsStart ? [NOTHING] : ANY) }],
  ])
  const optional = entries.filter((entry) => entry.isOptional)
  for (const cut of cutsOf(entries.filter((entry) => !entry.isOptional))) {
    const last = Math.max(...cut.map((entry) => entry.until))
    const open = optional.filter((entry) => entry.from <= last)
    const next = place(frontier, cut, open, stopsItself)
    if (next === 'undecided') {
      return [{ invariant: 'I5', subject: id, says: `not decided: ${cut.length} steps overlap: ${describe(cut)}` }]
    }
    if (next.size === 0) {
      const states = [...frontier.values()].flatMap((held) => held.states.all()).map(describeState)
      const says = `no order of calls explains the answers, from ${states.join(' or ')}: ${describe([...cut, ...open])}`
      return [{ invariant: 'I5', subject: id, says }]
    }
    frontier = next
  }
  return []
}

/** An operation that was there before the history begins may be anything. */
const ANY: State[] = OPERATION_STATUSES.flatMap((status) =>
  [true, false].flatMap((cancelled) => [true, false].map((paused) => ({ status, cancelled, paused, version: 0 }))),
)

type Draft = Pick<Entry, 'step' | 'isOptional'>

/** Refusals that depend on the state, and so say something of it. */
const TELLING = [
  'idempotency-key-reused',
  'operation-already-final',
  'operation-not-pausable',
  'operation-not-paused',
  'operation-not-draft',
  'not-awaiting-approval',
]
const CHANGING: readonly Call['kind'][] = [...CREATING, 'start', 'approve', 'cancel', 'pause', 'resume']

const stepsOf = (call: Call): Entry[] => {
  const drafts = draftsOf(call)
  return drafts.map(({ step, isOptional }, index) => ({
    call,
    step,
    isOptional,
    from: call.invokedAt,
    until: isOptional ? Number.POSITIVE_INFINITY : (call.returnedAt ?? Number.POSITIVE_INFINITY),
    after: index === 0 ? null : index - 1,
  }))
}

const draftsOf = (call: Call): Draft[] => {
  const changes = CHANGING.includes(call.kind)
  if (!isAnswered(call) || call.outcome.status >= 500) {
    return changes ? [{ step: { kind: 'write', call: call.kind, outcome: null }, isOptional: true }] : []
  }
  const { outcome } = call
  if (outcome.status === 404) return [{ step: { kind: 'absent' }, isOptional: false }]
  const isTelling = outcome.status < 300 || TELLING.includes(outcome.code ?? '')
  const write: Draft[] =
    changes && isTelling ? [{ step: { kind: 'write', call: call.kind, outcome }, isOptional: false }] : []
  return [...write, ...readOf(outcome)]
}

const readOf = ({ status, operation }: Outcome): Draft[] => {
  if (operation === null || status >= 300) return []
  const { status: shown, version, cancelRequestedAt } = operation
  const step: Step = { kind: 'read', status: shown, version, cancelled: cancelRequestedAt !== null }
  return [{ step, isOptional: false }]
}

/** Where no answered call is open, the past is over. */
const cutsOf = (entries: readonly Entry[]): Entry[][] => {
  const cuts: Entry[][] = []
  let open = Number.NEGATIVE_INFINITY
  for (const entry of entries) {
    if (entry.from > open) cuts.push([])
    cuts.at(-1)?.push(entry)
    open = Math.max(open, entry.until)
  }
  return cuts
}

/** What the past may have left: which of the unanswered calls have happened, and the states that this allows. */
interface Held {
  taken: ReadonlySet<Entry>
  states: States
}

const place = (
  frontier: ReadonlyMap<string, Held>,
  cut: readonly Entry[],
  open: readonly Entry[],
  stopsItself: boolean,
): Map<string, Held> | 'undecided' => {
  const ends = new Map<string, Held>()
  let steps = 0
  for (const held of frontier.values()) {
    const entries = [...cut, ...open.filter((entry) => !held.taken.has(entry))]
    const seen = new Set<string>()
    const queue: [placed: bigint, state: State][] = held.states.all().map((state) => [0n, state])
    for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
      steps += 1
      if (steps > STEPS_MAX) return 'undecided'
      const [placed, state] = takeIdle(entries, ...next)
      const name = `${placed} ${nameOf(state)} ${state.version}`
      if (seen.has(name)) continue
      seen.add(name)
      if (cut.every((_, index) => has(placed, index))) keepEnd(ends, held, entries, placed, state)
      for (const index of candidates(entries, placed)) {
        const step = entries[index]?.step
        if (step === undefined) continue
        for (const moved of moveAlone([state], { stopsItself })) {
          for (const after of takeStep(moved, step)) queue.push([placed | (1n << BigInt(index)), after])
        }
      }
    }
  }
  return ends
}

const has = (placed: bigint, index: number): boolean => ((placed >> BigInt(index)) & 1n) === 1n

const keepEnd = (
  ends: Map<string, Held>,
  held: Held,
  entries: readonly Entry[],
  placed: bigint,
  state: State,
): void => {
  const taken = new Set([...held.taken, ...entries.filter((entry, index) => entry.isOptional && has(placed, index))])
  const name = [...taken]
    .map(({ call }) => call.index)
    .sort((a, b) => a - b)
    .join(' ')
  const known = ends.get(name)
  if (known) known.states.add(state)
  else ends.set(name, { taken, states: new States([state]) })
}

/** What may come next: begun before every answer that is still to be placed, and behind its own first half. */
const candidates = (entries: readonly Entry[], placed: bigint): number[] => {
  let soonest = Number.POSITIVE_INFINITY
  let lowest = Number.POSITIVE_INFINITY
  for (const [index, { until, step }] of entries.entries()) {
    if (has(placed, index)) continue
    soonest = Math.min(soonest, until)
    if (step.kind === 'read') lowest = Math.min(lowest, step.version)
  }
  return entries.flatMap((entry, index) => {
    if (has(placed, index) || entry.from > soonest) return []
    if (entry.step.kind === 'read' && entry.step.version > lowest) return []
    return entry.after === null || isPlaced(entries, placed, entry) ? [index] : []
  })
}

const isPlaced = (entries: readonly Entry[], placed: bigint, { call, after }: Entry): boolean => {
  const first = entries.findIndex((other) => other.call === call && other.after === null)
  return after !== null && has(placed, first)
}

/** Steps that change nothing here and now are taken at once. */
const takeIdle = (entries: readonly Entry[], placed: bigint, state: State): [bigint, State] => {
  let now = placed
  for (let isMoving = true; isMoving; ) {
    isMoving = false
    for (const index of candidates(entries, now)) {
      const entry = entries[index]
      if (entry === undefined || entry.isOptional || !isIdle(state, entry.step)) continue
      now |= 1n << BigInt(index)
      isMoving = true
    }
  }
  return [now, state]
}

/** A pause that is a receipt here may be what stops the run elsewhere: only what never changes anything may be taken at once. */
const mayIdle = (step: Step): boolean =>
  step.kind !== 'write' || step.outcome?.replayed === true || (step.outcome?.status ?? 0) >= 400

const isIdle = (state: State, step: Step): boolean => {
  if (!mayIdle(step)) return false
  const [after, ...others] = takeStep(state, step)
  return (
    after !== undefined && others.length === 0 && nameOf(after) === nameOf(state) && after.version === state.version
  )
}

const describeState = ({ status, cancelled, version }: State): string =>
  `${status ?? 'nothing'}${cancelled ? ', cancelled,' : ''} at ${version}`

const CALLS_SHOWN = 20

const describe = (entries: readonly Entry[]): string =>
  [...new Set(entries.map(({ call }) => call))]
    .slice(0, CALLS_SHOWN)
    .map((call) => {
      const told = isAnswered(call)
        ? [call.outcome.status, call.outcome.code, call.outcome.operation?.status, call.outcome.operation?.version]
        : ['no answer']
      const ms = `${call.invokedAt.toFixed(1)}–${call.returnedAt?.toFixed(1) ?? ''}`
      return `${call.kind} (${ms}) ${told.filter((part) => part !== null && part !== undefined).join(' ')}`
    })
    .join('; ')
