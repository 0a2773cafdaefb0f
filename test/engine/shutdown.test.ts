import type { ChildProcess } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { SAME_SIGNAL_MS } from '../../src/shutdown.ts'
import { spawnScript, waitForExit, waitForLine } from '../support/processes.ts'

const drainer = async (args: string[], ipc = false): Promise<{ child: ChildProcess; output: () => string }> => {
  const child = spawnScript('./drainer.ts', args, { ipc })
  let text = ''
  child.stdout?.on('data', (chunk) => {
    text += String(chunk)
  })
  await waitForLine(child, /^ready/)
  return { child, output: () => text }
}

describe('a process told to stop', () => {
  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('drains on %s and exits with 0', async (signal) => {
    const { child, output } = await drainer(['10'])
    child.kill(signal)
    expect(await waitForExit(child)).toEqual({ code: 0, signal: null })
    expect(output()).toContain(`draining ${signal}\ndrained`)
  })
  it('takes a second signal within 2 s for the same one', async () => {
    const { child, output } = await drainer(['300'])
    const draining = waitForLine(child, /^draining/)
    child.kill('SIGTERM')
    await draining
    child.kill('SIGTERM')
    child.kill('SIGINT')
    expect(await waitForExit(child)).toEqual({ code: 0, signal: null })
    expect(output().match(/draining/g)).toHaveLength(1)
  })
  it('takes a later one for "now"', async () => {
    const { child, output } = await drainer(['60000'])
    child.kill('SIGTERM')
    await sleep(SAME_SIGNAL_MS + 200) // the rule is about time, so time has to pass
    child.kill('SIGTERM')
    expect(await waitForExit(child)).toEqual({ code: 1, signal: null })
    expect(output()).not.toContain('drained')
  })
  it('exits with 1 when the grace is exceeded', async () => {
    const { child } = await drainer(['60000', '100'])
    child.kill('SIGTERM')
    expect(await waitForExit(child)).toEqual({ code: 1, signal: null })
  })
  it('exits with 1 when the drain fails', async () => {
    const { child } = await drainer(['fail'])
    child.kill('SIGTERM')
    expect(await waitForExit(child)).toEqual({ code: 1, signal: null })
  })
  it('drains when its parent is gone', async () => {
    const { child, output } = await drainer(['10'], true)
    child.disconnect()
    expect(await waitForExit(child)).toEqual({ code: 0, signal: null })
    expect(output()).toContain('draining parent-gone\ndrained')
  })
  it('ends when its parent is gone while it loads its modules', async () => {
    const child = spawnScript('./drainer.ts', ['10', '20000', 'loading'], { ipc: true })
    child.disconnect()
    expect(await waitForExit(child)).toEqual({ code: 1, signal: null })
  })
  it('ends when its parent is gone while it boots', async () => {
    const { child } = await drainer(['10', '20000', 'booting'], true)
    child.disconnect()
    expect(await waitForExit(child)).toEqual({ code: 1, signal: null })
  })
})
