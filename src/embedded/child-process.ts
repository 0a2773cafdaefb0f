import { type ChildProcess, spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Log } from '../log.ts'
import { EXIT_CONFIGURATION, isConfigurationFault } from '../shutdown.ts'

/**
 * Keeps one child process alive: `running → (died) → waiting → running`, until `stop`. A child that dies is started
 * again within 1 s and never given up, except when it says that its configuration is wrong: starting it again would
 * give the same answer.
 *
 * The child stays in our process group, so that a Ctrl-C reaches it too, and holds an IPC channel to us, so that it
 * notices when we are killed.
 */
export interface ChildOptions {
  name: 'api' | 'worker'
  env: Record<string, string | undefined>
  log: Log
  onConfigurationError: (message: string) => void
}

export interface SupervisedChild {
  /** Asks it to drain, kills it after the grace; returns when it is gone. */
  stop(graceMs: number): Promise<void>
  /** Kills it at once, without waiting. */
  kill(): void
}

const BACKOFF_FIRST_MS = 200
const BACKOFF_MAX_MS = 1_000
/** A child that ran this long was well: its next death starts the backoff anew. */
const HEALTHY_AFTER_MS = 10_000

/** In a checkout the entries are TypeScript and run under tsx, found from here and not from the working directory. */
const commandFor = (name: ChildOptions['name']): string[] => {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
  const entry = fileURLToPath(new URL(`../${name}.${extension}`, import.meta.url))
  if (extension === 'js') return [entry]
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
  return ['--import', loader, entry]
}

export const superviseChild = ({ name, env, log, onConfigurationError }: ChildOptions): SupervisedChild => {
  let child: ChildProcess | null = null
  let restartTimer: NodeJS.Timeout | undefined
  let backoffMs = BACKOFF_FIRST_MS
  let stopping = false
  let onGone: () => void = () => {}

  const launch = (): void => {
    const startedAt = performance.now()
    let fault: string | null = null
    const launched = spawn(process.execPath, commandFor(name), { env, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    child = launched
    launched.on('message', (message) => {
      if (isConfigurationFault(message)) fault = message.configurationError
    })

    let ended = false
    const end = (code: number | null, signal: string | null, error?: Error): void => {
      if (ended) return
      ended = true
      child = null
      if (stopping) {
        onGone()
        return
      }
      if (code === EXIT_CONFIGURATION) {
        onConfigurationError(fault ?? `the ${name} refused its configuration`)
        return
      }
      if (performance.now() - startedAt > HEALTHY_AFTER_MS) backoffMs = BACKOFF_FIRST_MS
      log.warn(
        { child: name, child_pid: launched.pid, code, signal, err: error, restart_in_ms: backoffMs },
        'child died',
      )
      restartTimer = setTimeout(launch, backoffMs)
      backoffMs = Math.min(backoffMs * 2, BACKOFF_MAX_MS)
    }
    // A process that could not be created tells so by `error` alone.
    launched.on('error', (error) => {
      if (launched.pid === undefined) end(null, null, error)
    })
    launched.on('close', (code, signal) => end(code, signal))
  }
  launch()

  return {
    kill() {
      child?.kill('SIGKILL')
    },
    async stop(graceMs) {
      stopping = true
      clearTimeout(restartTimer)
      if (child === null) return
      const running = child
      const gone = new Promise<void>((resolve) => {
        onGone = resolve
      })
      running.kill('SIGTERM')
      const killer = setTimeout(() => {
        log.error({ child: name, child_pid: running.pid, grace_ms: graceMs }, 'child did not drain in time, killing it')
        running.kill('SIGKILL')
      }, graceMs)
      await gone
      clearTimeout(killer)
    },
  }
}
