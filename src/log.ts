import { type DestinationStream, type Logger, pino } from 'pino'
import type { LogLevel } from './config.ts'
import { showError } from './log-errors.ts'

export type Log = Logger

/** Members that are replaced wherever an object is logged, up to two levels deep (pino's wildcards are one level each). */
const SECRET_MEMBERS = [
  'authorization',
  'Authorization',
  'cookie',
  'Cookie',
  '["set-cookie"]',
  'password',
  'token',
  'apiKey',
  'secret',
  'secrets',
  'databaseUrl',
  'DATABASE_URL',
]

const REDACTED_PATHS = SECRET_MEMBERS.flatMap((member) => {
  const suffix = member.startsWith('[') ? member : `.${member}`
  return [member, `*${suffix}`, `*.*${suffix}`]
})

/** Lines that wait for a reader of stdout; more are dropped, and their number is told once there is one again. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024

/**
 * Stdout as a place for lines that nobody has to read: a reader that stands still or is gone neither stops the event loop,
 * nor grows the heap, nor keeps the process from leaving. (pino's own destination writes what is left when the process
 * exits, and waits for its reader for ever.)
 */
const openStdout = (): DestinationStream => {
  const { stdout } = process
  let dropped = 0
  stdout.on('error', () => {})
  return {
    write(line) {
      if (stdout.destroyed) return
      if (stdout.writableLength > WAITING_BYTES_MAX) {
        dropped += 1
        return
      }
      if (dropped > 0) stdout.write(`${JSON.stringify({ level: 'warn', dropped, msg: 'log lines were dropped' })}\n`)
      dropped = 0
      stdout.write(line)
    },
  }
}

/** One JSON object a line, on stdout. `name` tells the processes of one machine apart. */
export const createLog = ({ level, name }: { level: LogLevel; name: string }): Log =>
  pino(
    {
      level,
      base: { name, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: showError },
      redact: { paths: REDACTED_PATHS, censor: '[redacted]' },
    },
    openStdout(),
  )
