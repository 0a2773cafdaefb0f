import type { RunnableItem } from '../storage/run/window.ts'

/** Items are immutable and complete: a gap would make the cursor pass over work, or never move. */
export const assertWindow = (items: readonly RunnableItem[], cursor: number): void => {
  const complete = items.length > 0 && items.every((item, index) => item.ord === cursor + index)
  if (!complete) throw new Error(`items are missing at ord ${cursor}: the shard cannot go on`)
}
