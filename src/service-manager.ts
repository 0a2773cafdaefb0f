/**
 * What the process tells the service manager that started it: `READY=1` once it works, `WATCHDOG=1` again and again while it gets
 * somewhere, `STOPPING=1` when it drains (sd_notify(3)). A manager that set `WatchdogSec=` kills a process that stays silent, and
 * starts a new one. Without a manager nothing is told, and what is asked here anyway still holds: a process that gets nowhere
 * leaves, so that whatever restarts it can.
 *
 * The messages are datagrams to a unix socket, and Node has no API for these. So each is sent by `systemd-notify`, a program that
 * is there where systemd is: one at a time, seldom, with a deadline. It waits until the manager has read its message, and as it is
 * not the process that the manager started, the unit says `NotifyAccess=all`.
 */
import { execFile } from 'node:child_process'
import type { ServiceManagerSettings } from './config.ts'
import type { Log } from './log.ts'

const COMMAND = 'systemd-notify'
/** Of one message, program start included. */
const SEND_MS = 5_000
const LOOK_MS = 1_000
/** Messages in one watchdog time: two may be lost. */
const MESSAGES = 3
/** Shown by `systemctl status`. */
const STATUS_LENGTH_MAX = 200

export interface ServiceManager {
  /** Everything is there: from now on the watchdog counts. */
  ready(): void
  stopping(): void
  close(): void
}

export const openServiceManager = (options: {
  /** Null: nobody asked to be told. */
  settings: ServiceManagerSettings | null
  log: Log
  /** Why the process gets nowhere; null: it does. */
  stuck: () => string | null
  /** Called once. No sign of life is given after it. */
  onStuck: () => void
  command?: string
}): ServiceManager => {
  const { settings, log, stuck, onStuck, command = COMMAND } = options
  let isReady = false
  let isSuspected = false
  let isStuck = false
  let aliveAtMs = Number.NEGATIVE_INFINITY
  let sending = false
  let failing = false
  const waiting: string[][] = []

  const sendNext = (): void => {
    const message = settings === null || sending ? undefined : waiting.shift()
    if (settings === null || message === undefined) return
    sending = true
    const env = { PATH: settings.path, NOTIFY_SOCKET: settings.socket }
    const child = execFile(command, message, { env, timeout: SEND_MS, killSignal: 'SIGKILL' }, (error) => {
      sending = false
      // once, not at each message
      if (error && !failing) log.warn({ err: error }, 'the service manager could not be told')
      failing = error !== null
      sendNext()
    })
    // a process that has drained does not wait for it
    child.unref()
  }
  const tell = (...message: string[]): void => {
    waiting.push(message)
    sendNext()
  }

  const look = (): void => {
    if (isStuck) return
    const reason = stuck()
    // twice: a process that was frozen as a whole looks here before anything else could move
    const wasSuspected = isSuspected
    isSuspected = reason !== null
    if (reason !== null && !wasSuspected) return
    if (reason !== null) {
      isStuck = true
      log.fatal({ reason }, 'this process gets nowhere; it ends itself')
      tell(`STATUS=stuck: ${reason}`.slice(0, STATUS_LENGTH_MAX))
      onStuck()
      return
    }
    const everyMs = settings?.watchdogMs == null ? null : settings.watchdogMs / MESSAGES
    if (!isReady || everyMs === null || performance.now() - aliveAtMs < everyMs) return
    aliveAtMs = performance.now()
    // one that waits says the same
    if (waiting.length === 0) tell('WATCHDOG=1')
  }
  const timer = setInterval(look, Math.min(LOOK_MS, (settings?.watchdogMs ?? LOOK_MS * MESSAGES) / MESSAGES))
  timer.unref()

  return {
    ready() {
      isReady = true
      tell('READY=1', 'STATUS=working')
    },
    stopping: () => tell('STOPPING=1', 'STATUS=draining'),
    close: () => clearInterval(timer),
  }
}
