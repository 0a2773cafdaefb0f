import { createLog } from '../../src/log.ts'
import { onShutdown } from '../../src/shutdown.ts'

/** A process that logs without end, or only when it leaves (`quiet`), and says on stderr that its event loop turns. */
const log = createLog({ level: 'info', name: 'talker' })
const line = 'x'.repeat(1_000)
const [manner] = process.argv.slice(2)
setInterval(() => {
  if (manner === 'quiet') return
  for (let lines = 0; lines < 100; lines++) log.info(line)
}, 5)
setInterval(() => process.stderr.write('turns\n'), 50)
onShutdown(async (reason) => {
  for (let lines = 0; lines < 100; lines++) log.info({ reason }, 'stopping')
})
