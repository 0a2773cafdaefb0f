/** What must hold among the answers themselves, whatever the database says. */
import { isFinal } from '../../src/domain/operation.ts'
import {
  type AnsweredCall,
  type Call,
  COUNTED,
  CREATING,
  isAccepted,
  isAnswered,
  type OperationBody,
} from './history.ts'
import type { Violation } from './violation.ts'

const groupBy = <Row, Key>(rows: readonly Row[], keyOf: (row: Row) => Key): Map<Key, Row[]> => {
  const groups = new Map<Key, Row[]>()
  for (const row of rows) {
    const group = groups.get(keyOf(row))
    if (group) group.push(row)
    else groups.set(keyOf(row), [row])
  }
  return groups
}

export const checkAnswers = (calls: readonly Call[]): Violation[] => [
  ...checkKeys(calls),
  ...calls.flatMap((call) => (isAnswered(call) && call.outcome.operation ? checkCounts(call.outcome.operation) : [])),
  ...checkSubmitted(calls),
  ...[...byOperation(calls)].flatMap(([id, told]) => checkOrder(id, told)),
]

/** I1: one key, one operation, one body; and only one of its answers says that it made the operation. */
const checkKeys = (calls: readonly Call[]): Violation[] => {
  const found: Violation[] = []
  const says = (key: string, text: string): void =>
    void found.push({ invariant: 'I1', subject: `key ${key}`, says: text })
  for (const [key, told] of groupBy(calls.filter(isAccepted), (call) => call.key)) {
    if (key === null) continue
    const created = told.filter((call) => CREATING.includes(call.kind))
    const ids = new Set(created.map((call) => call.operationId))
    if (ids.size > 1) says(key, `names ${[...ids].join(' and ')}`)
    if (new Set(created.map((call) => call.body)).size > 1) says(key, 'was accepted with two bodies')
    const makers = created.filter((call) => call.kind === 'submit' && !call.outcome.replayed)
    if (makers.length > 1) says(key, `${makers.length} answers say that they made the operation`)
  }
  return found
}

/** I2, as a client sees it. An item that is sent again counts as what it was until the answer is there. */
export const checkCounts = ({ id, counts }: OperationBody): Violation[] => {
  const { total, in_flight, unprocessed, failed, uncertain } = counts
  const wrong: [boolean, string][] = [
    [COUNTED.reduce((sum, name) => sum + counts[name], 0) !== total, 'do not add up'],
    [[...COUNTED, 'in_flight' as const].some((name) => !(counts[name] >= 0)), 'are no counts'],
    [in_flight > unprocessed + failed + uncertain, `have ${in_flight} in flight of fewer`],
  ]
  return wrong
    .filter(([isWrong]) => isWrong)
    .map(([, text]) => ({ invariant: 'I2', subject: id, says: `the counts ${text}: ${JSON.stringify(counts)}` }))
}

/** I7: as many items as were handed over. */
const checkSubmitted = (calls: readonly Call[]): Violation[] =>
  calls.filter(isAccepted).flatMap((call) => {
    const total = call.outcome.operation?.counts.total
    if (call.items === null || total === undefined || total === call.items) return []
    return [
      { invariant: 'I7', subject: call.operationId ?? '', says: `${call.items} items were sent, and it has ${total}` },
    ]
  })

type Told = AnsweredCall & { outcome: { operation: OperationBody } }

const isTold = (call: Call): call is Told => isAnswered(call) && call.outcome.operation !== null

const byOperation = (calls: readonly Call[]): Map<string, Told[]> =>
  groupBy(calls.filter(isTold), (call) => call.outcome.operation.id)

interface Seen {
  version: number
  final: string | null
  applied: number
  skipped: number
}

/**
 * I5: a call that begins after another has ended is told no older state. Two calls that overlap may be told either first, so
 * each is held against the furthest of those that had ended when it began.
 */
const checkOrder = (id: string, told: readonly Told[]): Violation[] => {
  const found: Violation[] = []
  const says = (text: string): void => void found.push({ invariant: 'I5', subject: id, says: text })
  const ended = [...told].sort((a, b) => a.returnedAt - b.returnedAt)
  const begun = [...told].sort((a, b) => a.invokedAt - b.invokedAt)
  const acknowledged = new Set(told.flatMap(({ outcome }) => outcome.operation.cancelAcknowledgedAt ?? []))
  if (acknowledged.size > 1) says(`its cancel was acknowledged at ${[...acknowledged].sort().join(' and at ')}`)
  const seen: Seen = { version: 0, final: null, applied: 0, skipped: 0 }
  let next = 0
  for (const call of begun) {
    for (let before = ended[next]; before && before.returnedAt < call.invokedAt; before = ended[++next]) {
      const { status, version, counts } = before.outcome.operation
      seen.version = Math.max(seen.version, version)
      seen.applied = Math.max(seen.applied, counts.applied)
      seen.skipped = Math.max(seen.skipped, counts.skipped)
      if (isFinal(status)) seen.final = status
    }
    const { status, version, counts } = call.outcome.operation
    if (version < seen.version) says(`version ${seen.version} became ${version}`)
    if (seen.final !== null && status !== seen.final) says(`left ${seen.final} for ${status}`)
    if (counts.applied < seen.applied) says(`applied ${seen.applied} fell to ${counts.applied}`)
    if (counts.skipped < seen.skipped) says(`skipped ${seen.skipped} fell to ${counts.skipped}`)
  }
  return found
}
