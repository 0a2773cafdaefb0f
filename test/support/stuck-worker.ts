import { existsSync, writeFileSync } from 'node:fs'
import { installProbe } from '../../src/probe.ts'

/**
 * A worker whose first run never comes back, unless the file STUCK_ONCE is there already: the process that is started after it is
 * well. From then on its monotonic clock is a fast one, as what is given up only after minutes should not take minutes.
 */
const TIMES = 30

const file = process.env.STUCK_ONCE
if (file === undefined) throw new Error('STUCK_ONCE is not set')

const hurry = (): void => {
  const slow = performance.now.bind(performance)
  const sinceMs = slow()
  performance.now = () => sinceMs + (slow() - sinceMs) * TIMES
}

installProbe(async (point) => {
  if (point !== 'run-started' || existsSync(file)) return
  writeFileSync(file, '')
  hurry()
  await new Promise(() => {})
})
await import('../../src/worker.ts')
