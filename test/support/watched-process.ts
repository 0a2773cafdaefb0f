import { pino } from 'pino'
import { startWatchdog } from '../../src/engine/watchdog.ts'

/** A process under a watchdog that waits half a second. `hang`: its event loop stands still; otherwise it turns, and ends by itself. */
const watchdog = startWatchdog(pino({ enabled: false }), { stillMs: 500, tickMs: 50 })
if (process.argv[2] === 'hang') {
  setTimeout(() => {
    for (;;);
  }, 100)
} else {
  setTimeout(() => void watchdog.stop().then(() => process.stdout.write('well\n')), 2_000)
}
