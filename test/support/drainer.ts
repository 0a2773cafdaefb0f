import { setTimeout as sleep } from 'node:timers/promises'
import { onShutdown, runEntry } from '../../src/shutdown.ts'

/**
 * A process that drains for the given milliseconds (or fails to), for tests of the signal rules. It loads its modules until
 * its parent is gone when told `loading`, and boots for ever when told `booting`.
 */
const [drainMs = '0', graceMs = '60000', stage] = process.argv.slice(2)
setInterval(() => {}, 60_000)
while (stage === 'loading' && process.connected) await sleep(5)
await runEntry(async () => {
  if (stage === 'booting') {
    process.stdout.write('ready\n')
    await new Promise(() => {})
  }
  onShutdown(
    async (reason) => {
      process.stdout.write(`draining ${reason}\n`)
      if (drainMs === 'fail') throw new Error('the drain failed')
      await sleep(Number(drainMs))
      process.stdout.write('drained\n')
    },
    { graceMs: Number(graceMs) },
  )
  process.stdout.write('ready\n')
})
