/**
 * I1 to I8 over what clients were told, what the database holds, and what the outside world says. Answers with what is broken;
 * a violation is never thrown.
 *
 *   during   what holds at every instant, in the middle of any fault
 *   end      the same, and that it is over: nothing open but what `expected` allows
 */
import type postgres from 'postgres'
import { checkAnswers } from './answers.ts'
import type { Judge } from './effect-log.ts'
import { checkEffects } from './effects-account.ts'
import { checkEnd, type OpenOperation } from './end-account.ts'
import { type History, operationIds } from './history.ts'
import { checkItems } from './items-account.ts'
import { checkAccepted, checkStates, uuidOf } from './states-account.ts'
import type { Violation } from './violation.ts'

export interface Expected {
  /** What may be open in the end: uncertain effects that nobody can be asked about, a pause, a draft. */
  open?: (operation: OpenOperation) => boolean
  /** Keys whose requests were held back between the last check and the socket on purpose: they may start after a cancel. */
  mayBeLate?: (effectKey: string) => boolean
}

export interface Run {
  history: Pick<History, 'calls'>
  sql: postgres.Sql
  /** Who can say what was done; none: the database alone is looked at. */
  judges: readonly Judge[]
  expected?: Expected
  phase: 'during' | 'end'
  /** Epoch ms by the database's clock, for `end`: what is final became so by then. */
  deadline?: number
}

export const checkInvariants = async (run: Run): Promise<Violation[]> => {
  const { history, sql, judges, expected = {}, phase, deadline = null } = run
  // The calls first: what they say is there must be there from then on.
  const calls = history.calls().map((call) => ({ ...call }))
  const ids = operationIds({ calls: () => calls }).map(uuidOf)
  const found = await Promise.all([
    checkAnswers(calls),
    checkAccepted(sql, calls),
    checkStates(sql, ids),
    checkItems(sql, ids),
    ...judges.map((judge) => checkEffects(sql, ids, judge, { mayBeLate: expected.mayBeLate })),
    phase === 'end' ? checkEnd(sql, ids, { open: expected.open ?? (() => false), deadline }) : [],
  ])
  return found.flat()
}
