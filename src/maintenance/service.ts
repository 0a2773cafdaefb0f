import type { Log } from '../log.ts'

/** One maintenance service: a bounded `runOnce`, repeated. Answers whether it wants to go on at once. */
export interface MaintenanceService {
  name: string
  everyMs: number
  /** One bounded step. Several workers may run it at the same time: it claims what it works on. */
  runOnce(): Promise<{ more: boolean }>
}

export interface RunningService {
  /** Brings the next run forward. */
  nudge(): void
  /** Resolves when the run in progress is over. */
  stop(): Promise<void>
}

/** Steps in a row without a pause, so that a service with endless work leaves the others room. */
const STEPS_IN_A_ROW_MAX = 100

/** Repeats a service until it is stopped. A failed run is logged and tried again at its next time. */
export const repeat = (service: MaintenanceService, log: Log): RunningService => {
  let stopped = false
  let wake: () => void = () => {}

  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })

  const run = async (): Promise<void> => {
    while (!stopped) {
      try {
        for (let steps = 0; steps < STEPS_IN_A_ROW_MAX && !stopped; steps++) {
          if (!(await service.runOnce()).more) break
        }
      } catch (error) {
        log.warn({ err: error, service: service.name }, 'maintenance failed; it is tried again')
      }
      // jitter keeps the workers of a fleet apart
      if (!stopped) await pause(service.everyMs * (0.75 + Math.random() / 2))
    }
  }
  const finished = run()

  return {
    nudge: () => wake(),
    async stop() {
      stopped = true
      wake()
      await finished
    },
  }
}
