import { describe, expect, test } from 'vitest'
import { RULES, type Rule, without } from '../../interleavings/rules.ts'
import { search } from '../../interleavings/search.ts'
import type { World } from '../../interleavings/state.ts'
import { ANSWERS, DEATHS, DELAYED, FAULTS, ONE_KEY, TAKEOVER } from '../../interleavings/worlds.ts'

const SEARCH_MS = 120_000

/** What breaks first when a rule is switched off: it is necessary, and the search can see that it is missing. */
const BROKEN_WITHOUT: [rule: Rule, world: World, invariant: string][] = [
  ['windowNamesEpoch', TAKEOVER, 'I4'],
  ['windowNeedsNoStop', ONE_KEY, 'I6'],
  ['windowKeepsKnownKeys', ONE_KEY, 'I2'],
  ['retryNamesEpoch', ONE_KEY, 'I4'],
  ['retryNeedsNoStop', ONE_KEY, 'I6'],
  ['retryNeedsFreeKey', ONE_KEY, 'I2'],
  ['takeoverRaisesEpoch', TAKEOVER, 'I4'],
  ['orphansAreUncertain', TAKEOVER, 'I3'],
  ['evidenceNamesSend', TAKEOVER, 'I3'],
  ['appliedStays', TAKEOVER, 'I5'],
  ['lostIsUncertain', ANSWERS, 'I3'],
  ['sendNeedsLease', ONE_KEY, 'I6'],
  ['sendNeedsSendBy', DELAYED, 'I3'],
  ['sendNeedsOpenGate', ONE_KEY, 'I6'],
  ['gateClosesBeforeAcknowledgement', ONE_KEY, 'I6'],
  ['stopWaitsForHolder', ONE_KEY, 'I6'],
  ['absenceNeedsStability', TAKEOVER, 'I3'],
  ['finishNamesEpoch', TAKEOVER, 'I4'],
  ['endedLeaseStaysLeased', FAULTS, 'I2'],
  ['waitingReopensShard', DEATHS, 'I8'],
]

/** These hold already because others do; they stand in the statements so that a mistake elsewhere stays harmless. */
const SECOND_LINE: Rule[] = ['windowNamesCursor', 'finishNeedsNothingInFlight']

describe('without a rule the search finds what it is there for', () => {
  test.each(BROKEN_WITHOUT)('%s', { timeout: SEARCH_MS }, (rule, world, invariant) => {
    const { counterexample, states } = search({ ...world, rules: without(rule) })
    console.log(
      `${rule}: ${counterexample?.violation.invariant} ${counterexample?.violation.what}, ${counterexample?.steps.length} steps, ${states} states`,
    )
    expect(counterexample?.violation.invariant).toBe(invariant)
  })

  test.each(SECOND_LINE)('%s is a second line', { timeout: SEARCH_MS }, (rule) => {
    expect(search({ ...DEATHS, rules: without(rule) }).counterexample).toBeNull()
  })

  test('no rule is left out', () => {
    expect([...BROKEN_WITHOUT.map(([rule]) => rule), ...SECOND_LINE].sort()).toEqual(Object.keys(RULES).sort())
  })
})
