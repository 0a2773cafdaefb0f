/** What is searched. Each world is as large as it can be while its search stays a matter of seconds. */
import { RULES } from './rules.ts'
import type { World } from './state.ts'

const NOTHING_GOES_WRONG: World = {
  name: 'nothing goes wrong',
  keys: [0, 1],
  window: 1,
  expiries: 0,
  crashes: 0,
  faults: 0,
  cancels: false,
  pauses: 0,
  stalls: 0,
  delays: 0,
  refusals: 0,
  losses: 0,
  people: false,
  callbacks: false,
  idempotent: false,
  rules: RULES,
}

/** Claim, intent, send, outcome, cancel, expiry, takeover and late evidence, of two workers and two items. */
export const HOT: World = { ...NOTHING_GOES_WRONG, name: 'a takeover and a cancel', expiries: 1, cancels: true }
export const TAKEOVER: World = { ...NOTHING_GOES_WRONG, name: 'a takeover', expiries: 1, people: true }
export const ONE_KEY: World = { ...HOT, name: 'two items with one key', keys: [0, 0], people: true }
export const ANSWERS: World = {
  ...NOTHING_GOES_WRONG,
  name: 'lost and refused answers, callbacks, a cancel',
  cancels: true,
  losses: 1,
  refusals: 1,
  callbacks: true,
}
export const DEATHS: World = { ...NOTHING_GOES_WRONG, name: 'two crashes', window: 2, crashes: 2, people: true }
export const FAULTS: World = {
  ...NOTHING_GOES_WRONG,
  name: 'two faults of the database, a cancel',
  window: 2,
  faults: 2,
  cancels: true,
}
export const TWO_TAKEOVERS: World = {
  ...NOTHING_GOES_WRONG,
  name: 'two takeovers, one key',
  keys: [0, 0],
  window: 2,
  expiries: 2,
}
export const DELAYED: World = {
  ...NOTHING_GOES_WRONG,
  name: 'a send that is due too late, one key',
  keys: [0, 0],
  window: 2,
  expiries: 1,
  delays: 1,
}
export const PAUSED: World = {
  ...NOTHING_GOES_WRONG,
  name: 'a pause, a cancel, a loss',
  pauses: 1,
  cancels: true,
  losses: 1,
}
export const RESENT: World = {
  ...NOTHING_GOES_WRONG,
  name: 'declared idempotent resends, one key',
  keys: [0, 0],
  idempotent: true,
  losses: 1,
  expiries: 1,
}
export const SOUND = [HOT, TAKEOVER, ONE_KEY, ANSWERS, DEATHS, FAULTS, TWO_TAKEOVERS, DELAYED, PAUSED, RESENT]

export const HOLE: World = { ...ONE_KEY, name: 'frozen between check and socket', stalls: 1 }
