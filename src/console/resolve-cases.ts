import type { ApiClient } from './api/client.ts'
import { Problem, unreachable } from './api/problem.ts'
import type { Case } from './api/types.ts'

export interface Evidence {
  resolution: 'applied' | 'not_applied'
  evidenceRef: string
  effectRef: string | null
  note: string | null
  /** Send it again; only for what was not applied. */
  retry: boolean
}

/** Few at a time: the service has other callers, and a person cannot read faster. */
const AT_ONCE = 4

/** Closes each case with the same evidence, and tells of each how it went. Never throws. */
export const resolveCases = async (
  client: Pick<ApiClient, 'post'>,
  cases: readonly Case[],
  evidence: Evidence,
  onEach: (of: Case, problem: Problem | null) => void,
): Promise<void> => {
  const waiting = [...cases]
  const work = async (): Promise<void> => {
    for (let of = waiting.shift(); of !== undefined; of = waiting.shift())
      onEach(of, await resolveCase(client, of, evidence))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}

const resolveCase = async (client: Pick<ApiClient, 'post'>, of: Case, evidence: Evidence): Promise<Problem | null> => {
  const { resolution, evidenceRef, effectRef, note, retry } = evidence
  try {
    await client.post('/reconciliation/{case_id}/resolve', {
      path: { case_id: of.id },
      body: {
        resolution,
        evidence_ref: evidenceRef,
        effect_ref: effectRef,
        note,
        // that send which the person saw: if it was sent again meanwhile, the evidence is not about it
        ...(resolution === 'not_applied' ? { retry, send: of.send } : {}),
      },
    })
    return null
  } catch (error) {
    return error instanceof Problem ? error : unreachable(String(error), error)
  }
}
