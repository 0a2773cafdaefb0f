/**
 * Natural batching, without timers: what arrives while a batch is in flight goes into the next one. An idle service answers
 * at once; a busy one makes few large statements of many small ones.
 *
 *   idle ──first arrival──▶ one batch in flight ──▶ next batch of all that waited … ──▶ idle
 *
 * Limits: `lanes` batches in flight, `itemsMax` members a batch, `weightMax` of their weights, `queueMax` waiting members.
 * A batch that fails is retried member by member once, so that nobody pays for a neighbour; then each gets its own error.
 */
import { AppError } from '../domain/errors.ts'

interface Member<I, O> {
  input: I
  weight: number
  resolve: (output: O) => void
  reject: (error: unknown) => void
}

export const naturalBatch = <I, O>(options: {
  run: (inputs: I[]) => Promise<O[]>
  lanes: number
  itemsMax: number
  queueMax: number
  weigh?: (input: I) => number
  weightMax?: number
  /** Whether a failed batch is tried again member by member: only where members are independent and repeatable. */
  isolate?: (error: unknown) => boolean
}): ((input: I) => Promise<O>) => {
  const queue: Member<I, O>[] = []
  let flying = 0

  const take = (): Member<I, O>[] => {
    const batch: Member<I, O>[] = []
    let weight = 0
    while (queue.length > 0 && batch.length < options.itemsMax) {
      const next = queue[0] as Member<I, O>
      if (batch.length > 0 && weight + next.weight > (options.weightMax ?? Number.POSITIVE_INFINITY)) break
      weight += next.weight
      batch.push(next)
      queue.shift()
    }
    return batch
  }

  const settle = async (batch: Member<I, O>[]): Promise<void> => {
    try {
      const outputs = await options.run(batch.map((member) => member.input))
      batch.forEach((member, index) => {
        member.resolve(outputs[index] as O)
      })
    } catch (error) {
      if (batch.length > 1 && options.isolate?.(error)) {
        for (const member of batch) await settle([member])
        return
      }
      for (const member of batch) member.reject(error)
    }
  }

  const fly = (): void => {
    while (flying < options.lanes && queue.length > 0) {
      flying++
      void settle(take()).finally(() => {
        flying--
        fly()
      })
    }
  }

  return (input) =>
    new Promise((resolve, reject) => {
      if (queue.length >= options.queueMax) {
        reject(new AppError('overloaded', 'too many requests wait; try again shortly'))
        return
      }
      queue.push({ input, weight: options.weigh?.(input) ?? 1, resolve, reject })
      fly()
    })
}
