import { CommandFailure, EXIT } from './exit-codes.ts'

/** 128 + the number of the signal, as a shell would say it. */
const EXIT_BY_SIGNAL = { SIGINT: EXIT.interrupted, SIGTERM: 143, SIGHUP: 129 } as const
type Signal = keyof typeof EXIT_BY_SIGNAL
const SIGNALS = Object.keys(EXIT_BY_SIGNAL) as Signal[]

/**
 * Runs `work` until it is done or a signal comes. Then it is aborted, and the command ends with `hints`: what it waited for
 * goes on without it. A second signal ends the process at once, as by default.
 */
export const untilInterrupted = async <Result>(
  work: (signal: AbortSignal) => Promise<Result>,
  hints: () => readonly string[],
): Promise<Result> => {
  const controller = new AbortController()
  let received: Signal | null = null
  const onSignal = (signal: Signal): void => {
    removeAll()
    received = signal
    controller.abort(new Error(signal))
  }
  const removeAll = (): void => {
    for (const signal of SIGNALS) process.off(signal, onSignal)
  }
  for (const signal of SIGNALS) process.on(signal, onSignal)
  try {
    return await work(controller.signal)
  } catch (error) {
    if (received === null) throw error
    throw new CommandFailure('interrupted', EXIT_BY_SIGNAL[received], { hints: hints(), cause: error })
  } finally {
    removeAll()
  }
}
