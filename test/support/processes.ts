import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import readline from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/** Runs one of our TypeScript files as a real process, as `npm start` does. */
export const spawnScript = (
  file: string,
  args: string[] = [],
  options: { env?: Record<string, string | undefined>; ipc?: boolean } = {},
): ChildProcess =>
  spawn(process.execPath, ['--import', 'tsx', fileURLToPath(new URL(file, import.meta.url)), ...args], {
    stdio: ['ignore', 'pipe', 'pipe', ...(options.ipc ? (['ipc'] as const) : [])],
    ...(options.env ? { env: options.env } : {}),
  })

/** The first line on stdout that matches; an error when the process ends before. */
export const waitForLine = async (child: ChildProcess, pattern: RegExp): Promise<string> => {
  if (!child.stdout) throw new Error('the process has no stdout pipe')
  let stderr = ''
  child.stderr?.on('data', (chunk) => {
    stderr += String(chunk)
  })
  const lines = readline.createInterface({ input: child.stdout })
  for await (const line of lines) {
    if (!pattern.test(line)) continue
    child.stdout.resume() // keep the pipe empty
    return line
  }
  throw new Error(`the process ended before it printed ${pattern}: ${stderr}`)
}

export const waitForExit = async (child: ChildProcess): Promise<{ code: number | null; signal: string | null }> => {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  return { code: child.exitCode, signal: child.signalCode }
}

const UNTIL_MS = 30_000

/** Polls a fact until it holds; an error names what never came true. */
export const until = async (
  what: string,
  holds: () => boolean | Promise<boolean>,
  withinMs = UNTIL_MS,
): Promise<void> => {
  const giveUpAt = performance.now() + withinMs
  while (!(await holds())) {
    if (performance.now() > giveUpAt) throw new Error(`not within ${withinMs / 1000} s: ${what}`)
    await sleep(20)
  }
}
