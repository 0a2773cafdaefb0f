import type { ChildProcess } from 'node:child_process'
import { spawnScript, waitForExit, waitForLine } from './processes.ts'

export interface WorkerProcess {
  child: ChildProcess
  pid: number
  id: string
  kill(signal: NodeJS.Signals): void
  /** What it printed, for a test that failed. */
  output(): string
}

/** Real worker processes of one test. Whatever is still there at the end is killed. */
export interface WorkerFleet {
  start(change?: { databaseUrl?: string; concurrency?: number }): Promise<WorkerProcess>
  /** Starts a worker again each time it ends, as a supervisor would, until the fleet is stopped. Answers with how often it died. */
  supervise(): { deaths(): number }
  stop(): Promise<void>
}

export const openWorkerFleet = (options: {
  databaseUrl: string
  typeFiles: readonly string[]
  env?: Record<string, string>
}): WorkerFleet => {
  const workers = new Set<WorkerProcess>()
  let stopped = false

  const start: WorkerFleet['start'] = async ({ databaseUrl = options.databaseUrl, concurrency = 2 } = {}) => {
    const child = spawnScript('../../src/worker.ts', [], {
      env: {
        PATH: '/usr/bin:/bin',
        DATABASE_URL: databaseUrl,
        OPLEDGER_TYPES: options.typeFiles.join(','),
        WORKER_CONCURRENCY: String(concurrency),
        LOG_LEVEL: 'info',
        ...options.env,
      },
    })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk) => {
        text += String(chunk)
      })
    }
    const line: { worker_id: string } = JSON.parse(await waitForLine(child, /"worker started"/))
    const worker: WorkerProcess = {
      child,
      pid: child.pid ?? 0,
      id: line.worker_id,
      kill: (signal) => void child.kill(signal),
      output: () => text,
    }
    workers.add(worker)
    child.once('exit', () => workers.delete(worker))
    return worker
  }

  return {
    start,
    supervise() {
      let deaths = 0
      const keep = async (): Promise<void> => {
        while (!stopped) {
          // a worker may die before it says that it has started
          const worker = await start().catch(() => null)
          if (worker) await waitForExit(worker.child)
          if (!stopped) deaths++
        }
      }
      void keep()
      return { deaths: () => deaths }
    },
    async stop() {
      stopped = true
      for (const { child } of workers) {
        child.kill('SIGKILL')
        await waitForExit(child)
      }
    },
  }
}
