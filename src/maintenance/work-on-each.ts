import type { Log } from '../log.ts'

/**
 * Works on each element by itself: one that fails is logged, takes no other one's turn, and is tried again by a later run.
 * Answers with how many went well, so that a run of failures only does not go on at once.
 */
export const workOnEach = async <Element extends object>(
  elements: readonly Element[],
  log: Pick<Log, 'warn'>,
  what: string,
  work: (element: Element) => Promise<unknown>,
): Promise<number> => {
  let done = 0
  for (const element of elements) {
    try {
      await work(element)
      done++
    } catch (error) {
      log.warn({ err: error, ...named(element) }, `${what} failed; it is tried again`)
    }
  }
  return done
}

/** An element's identity, not all that it carries. */
const named = (element: object): Record<string, unknown> => ({
  ...('name' in element ? { chore: element.name } : {}),
  ...('tenantId' in element ? { tenant: element.tenantId } : {}),
  ...('operationId' in element ? { operation: element.operationId } : {}),
})
