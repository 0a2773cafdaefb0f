/**
 * The person who looks after what the service leaves to people: the reconciliation queue, with the log of the effect server as
 * evidence, and operations that a stop condition paused. "Applied" may be said at any time;
 * "not applied" only while nothing is being sent, nobody is frozen and the log has stopped growing: read earlier it is wrong
 * evidence, and nothing can protect from that.
 */
import type { Case, Client, Operation } from './client.ts'
import type { Stack } from './stack.ts'

export interface Closed {
  applied: number
  notApplied: number
}

const AT_ONCE = 8

/**
 * `absentToo`: the log is idle, and what it does not show is closed as not applied, to be tried again unless `retry` is false.
 * Answers with what was closed; who was told that another was first has closed nothing.
 */
export const closeCases = async (
  stack: Pick<Stack, 'effects'>,
  client: Client,
  ids: readonly string[],
  { absentToo, retry = true }: { absentToo: boolean; retry?: boolean },
): Promise<Closed> => {
  const closed: Closed = { applied: 0, notApplied: 0 }
  const cases = (await Promise.all(ids.map((id) => client.openCases(id)))).flat()
  if (cases.length === 0) return closed
  const log = absentToo ? await stack.effects.idleLog() : await stack.effects.log()
  const close = async (found: Case): Promise<void> => {
    const isApplied = (log[found.effect_key]?.applied ?? 0) > 0
    if (!isApplied && !absentToo) return
    const evidence_ref = `effect log: ${found.effect_key}`
    const { status } = await client.resolve(
      found,
      isApplied ? { resolution: 'applied', evidence_ref } : { resolution: 'not_applied', retry, evidence_ref },
    )
    if (status === 200) closed[isApplied ? 'applied' : 'notApplied'] += 1
    else if (status !== 409) throw new Error(`resolving ${found.id} answered ${status}`)
  }
  for (let from = 0; from < cases.length; from += AT_ONCE) {
    await Promise.all(cases.slice(from, from + AT_ONCE).map(close))
  }
  return closed
}

/**
 * Resumes what a stop condition paused, as the blows of a test look like an outage to it. It may trip again: a person tries
 * again then. What a client paused stays so.
 */
export const resumeStopped = async (client: Client, operations: readonly Operation[]): Promise<void> => {
  const stopped = operations.filter(({ status, error }) => status === 'paused' && error?.code === 'stop-condition')
  for (const { id } of stopped) {
    const { status } = await client.act('resume', id)
    if (status >= 300 && status !== 409) throw new Error(`resuming ${id} answered ${status}`)
  }
}
