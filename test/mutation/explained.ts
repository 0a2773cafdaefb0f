import type { Explanation } from './measure.ts'

/** Why a mutant may survive. By file and by the text of its line, as line numbers move. */
export const EXPLAINED: readonly Explanation[] = [
  {
    file: 'artifact.ts',
    at: "CHUNK_REF.exec(ref ?? '') ?? []",
    group: 'equivalent',
    why: 'what stands in for a missing reference is none either, whatever it is: the groups behind it are not there',
  },
  {
    file: 'artifact.ts',
    at: 'object === undefined || sha256 === undefined',
    group: 'equivalent',
    why: 'the pattern has all groups or none: either test alone tells; both are there for the compiler',
  },
]
