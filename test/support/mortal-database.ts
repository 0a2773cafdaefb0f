import type { Database } from '../../src/storage/database.ts'

/** What a statement of a dead process comes to. */
export class Died extends Error {}

/**
 * A database as one process sees it that dies at its `calls`-th call: before that reaches the server, or after it was committed
 * and before the answer is read. From then on nothing of the process reaches the server.
 */
export const mortalDatabase = (
  database: Database,
  death: { calls: number; when: 'before' | 'after' },
): { database: Database; died(): boolean } => {
  let calls = 0
  const once = async <T>(call: () => Promise<T>): Promise<T> => {
    calls++
    if (calls > death.calls || (calls === death.calls && death.when === 'before')) throw new Died('the process is dead')
    const answer = await call()
    if (calls >= death.calls) throw new Died('the process died before it read the answer')
    return answer
  }
  return {
    database: {
      query: (work) => once(() => database.query(work)),
      transaction: (work) => once(() => database.transaction(work)),
      lockThenWork: (steps) => once(() => database.lockThenWork(steps)),
      queuedMs: () => 0,
      close: async () => {},
    },
    died: () => calls >= death.calls,
  }
}
