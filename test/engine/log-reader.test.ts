import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { spawnScript, waitForExit } from '../support/processes.ts'

const EXIT_MS = 10_000

/** Nothing that a process does may depend on who reads what it says. */
describe('a process whose log', () => {
  it.each([
    ['is read by nobody', 'loud', false],
    ['has lost its reader', 'loud', true],
    ['lost its reader while it said nothing', 'quiet', true],
  ])('%s goes on, and leaves when it is told to', async (_how, manner, isLost) => {
    const child = spawnScript('./talker.ts', [manner])
    try {
      if (!child.stderr || !child.stdout) throw new Error('pipes are missing')
      await once(child.stderr, 'data')
      if (isLost) child.stdout.destroy()
      for (let turns = 0; turns < 20; turns++) await once(child.stderr, 'data')
      child.kill('SIGTERM')
      const late = sleep(EXIT_MS, 'late', { ref: false })
      expect(await Promise.race([waitForExit(child), late])).toEqual({ code: 0, signal: null })
    } finally {
      child.kill('SIGKILL')
    }
  })
})
