import type { OperationType } from '../domain/operation-type.ts'

/** Upper bounds of an operation's shards, which are of equal length: as many as the type runs in parallel, none smaller than one window of work. */
export const shardEnds = (type: OperationType, total: number): number[] => {
  // the publish, its last item, waits for all others: they stand under one lease
  if (type.effect === 'artifact') return [total]
  const window = type.effect === 'external' ? type.concurrency : type.batch.maxItems
  const shards = Math.max(1, Math.min(type.parallelism, Math.ceil(total / window)))
  return Array.from({ length: shards }, (_, shard) => Math.floor((total * (shard + 1)) / shards))
}
