/**
 * Where counts of items are sensitive (`counts: ranges` of their type), callers without `ledger:read` see ranges of them. Who
 * that is, and what becomes of figures that are made here; `http/resources` does it to resources.
 */
import { areCountsSensitive, lowerEnd } from '../domain/count-range.ts'
import { COUNT_FIGURES, RATIO_FIGURES } from '../domain/health.ts'
import type { OperationType } from '../domain/operation-type.ts'
import type { StopEvaluation } from '../domain/replay.ts'
import type { Types } from './context.ts'
import type { Principal } from './principal.ts'
import type { Gauge } from './views.ts'

export const seesRanges = (
  { scopes }: Pick<Principal, 'scopes'>,
  { countsSensitive }: { countsSensitive: boolean },
): boolean => countsSensitive && !scopes.includes('ledger:read')

/** A count as the caller may see it. */
export const shownCount = (
  view: { countsSensitive: boolean },
  caller: Pick<Principal, 'scopes'>,
): ((count: number) => number) => (seesRanges(caller, view) ? lowerEnd : (exact) => exact)

/** Conditions over a count, beside those over rates. */
const isOverCount = ({ condition }: StopEvaluation): boolean => condition.startsWith('ambiguous_effect_targets')

export const evaluationsInRanges = (evaluations: readonly StopEvaluation[]): StopEvaluation[] =>
  evaluations.map((each) => (isOverCount(each) ? { ...each, actual: lowerEnd(each.actual) } : each))

/** What a caller who is refused is told of the stop conditions. */
export const shownEvaluations = (
  { type, answer }: { type: OperationType; answer: { stopIf: readonly StopEvaluation[] } },
  principal: Pick<Principal, 'scopes'>,
): readonly StopEvaluation[] =>
  seesRanges(principal, { countsSensitive: areCountsSensitive(type) })
    ? evaluationsInRanges(answer.stopIf)
    : answer.stopIf

/** A figure of the health report: counts at the lower end of their range, shares of them with one digit. */
export const figureInRanges = (figure: string, value: number): number => {
  if (COUNT_FIGURES.has(figure)) return lowerEnd(value)
  return RATIO_FIGURES.has(figure) ? Number(value.toPrecision(1)) : value
}

/** Gauges whose series have a type. */
export const gaugesInRanges = (gauges: readonly Gauge[], types: Pick<Types, 'get'>): Gauge[] =>
  gauges.map((gauge) => ({
    ...gauge,
    values: gauge.values.map(({ labels, value }) => {
      const { type, figure } = labels
      if (type === undefined || !areCountsSensitive(types.get(type))) return { labels, value }
      if (figure !== undefined) return { labels, value: figureInRanges(figure, value) }
      return { labels, value: gauge.ofItems ? lowerEnd(value) : value }
    }),
  }))
