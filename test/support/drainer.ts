import { setTimeout as sleep } from 'node:timers/promises'
import { onShutdown } from '../../src/shutdown.ts'

/** A process that drains for the given milliseconds (or fails to), for tests of the signal rules. */
const [drainMs = '0', graceMs = '60000'] = process.argv.slice(2)
setInterval(() => {}, 60_000)
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
