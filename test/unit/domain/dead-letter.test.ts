import { expect, it } from 'vitest'
import { DEAD_LETTER_STATUSES, INCIDENT_STATUSES } from '../../../src/domain/dead-letter.ts'

it('a dead letter is open, closed by a person in one of two ways, or recovered by the world', () => {
  expect([...DEAD_LETTER_STATUSES].sort()).toEqual(['discarded', 'open', 'recovered', 'resolved'])
})

it('an incident is as its dead letters are: it can be open or resolved, as they can', () => {
  expect(INCIDENT_STATUSES.every((status) => DEAD_LETTER_STATUSES.includes(status))).toBe(true)
  expect([...INCIDENT_STATUSES]).toEqual(['open', 'resolved'])
})
