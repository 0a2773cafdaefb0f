import type { Explanation } from './measure.ts'

/** Why a mutant may survive. By file and by the text of its line, as line numbers move. */
export const EXPLAINED: readonly Explanation[] = []
