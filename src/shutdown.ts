import { ConfigurationError } from './domain/errors.ts'

/**
 * How a process leaves.
 *
 * `SIGTERM`, `SIGINT`, `SIGHUP`, or the loss of the parent (`start` holds an IPC channel to its children, so even its
 * `kill -9` is seen) begins one drain. npm and a process group can deliver one signal twice, therefore a second one
 * within 2 s is the same signal; a later one means "now". Exit code 0: drained; 1: the grace was exceeded, the drain
 * failed, or somebody said "now".
 */
export type ShutdownReason = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'parent-gone' | 'requested'

/** sysexits.h EX_CONFIG: tells `start` that starting again cannot help. */
export const EXIT_CONFIGURATION = 78
export const SAME_SIGNAL_MS = 2_000
/** Below the 25 s after which `start` kills, and the 30 s after which orchestrators do. */
const DRAIN_GRACE_MS = 20_000

export interface Shutdown {
  /** True from the first signal on. */
  readonly requested: boolean
  /** Begins the drain without a signal; `exitCode` is what a clean drain ends with. */
  request(exitCode?: number): void
}

export interface ShutdownOptions {
  graceMs?: number
  /** Told once when a later signal means "now"; without it the process ends at once. The signal after that ends it. */
  onNow?: () => void
  onError?: (error: unknown) => void
}

export const onShutdown = (
  drain: (reason: ShutdownReason) => Promise<void>,
  { graceMs = DRAIN_GRACE_MS, onNow, onError }: ShutdownOptions = {},
): Shutdown => {
  let lastCountedAt: number | null = null
  let hurried = false

  const begin = (reason: ShutdownReason, exitCode: number): void => {
    lastCountedAt = performance.now()
    setTimeout(() => process.exit(1), graceMs).unref()
    drain(reason).then(
      () => process.exit(hurried ? 1 : exitCode),
      (error: unknown) => {
        onError?.(error)
        process.exit(1)
      },
    )
  }

  const onSignal = (signal: 'SIGTERM' | 'SIGINT' | 'SIGHUP'): void => {
    if (lastCountedAt === null) {
      begin(signal, 0)
      return
    }
    if (performance.now() - lastCountedAt < SAME_SIGNAL_MS) return
    if (hurried || !onNow) process.exit(1)
    hurried = true
    lastCountedAt = performance.now()
    onNow()
  }
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => onSignal(signal))

  process.off('disconnect', leaveBoot)
  if (process.connected) {
    process.on('disconnect', () => {
      if (lastCountedAt === null) begin('parent-gone', 0)
    })
    // The channel alone must not keep a finished process alive.
    process.channel?.unref()
  }

  return {
    get requested() {
      return lastCountedAt !== null
    },
    request(exitCode = 0) {
      if (lastCountedAt === null) begin('requested', exitCode)
    },
  }
}

/** What a child tells `start` instead of printing it: two workers with one bad file would say it twice. */
export interface ConfigurationFault {
  configurationError: string
}
export const isConfigurationFault = (message: unknown): message is ConfigurationFault =>
  typeof message === 'object' && message !== null && 'configurationError' in message

/** A process whose parent is gone before it set its drain has nothing in hand; waiting for a database, it might stay for ever. */
const leaveBoot = (): void => process.exit(1)

/**
 * Runs the body of an entry file. A configuration error is one line without a stack, and `EXIT_CONFIGURATION`. The loss of
 * the parent ends the process also while it boots.
 */
export const runEntry = async (
  main: () => Promise<void>,
  configurationExitCode: number = EXIT_CONFIGURATION,
): Promise<void> => {
  // Undefined without a parent that listens; false when it was killed while our modules were loaded.
  if (process.connected === false) leaveBoot()
  if (process.connected) process.on('disconnect', leaveBoot)
  try {
    await main()
  } catch (error) {
    if (!(error instanceof ConfigurationError)) {
      process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
      process.exit(1)
    }
    if (process.send && process.connected) {
      const fault: ConfigurationFault = { configurationError: error.message }
      process.send(fault, undefined, undefined, () => process.exit(EXIT_CONFIGURATION))
      return
    }
    process.stderr.write(`opledger: ${error.message}\n`)
    process.exit(configurationExitCode)
  }
}
