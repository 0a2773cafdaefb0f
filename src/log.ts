import { type Logger, pino } from 'pino'
import type { LogLevel } from './config.ts'

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

/** One JSON object a line, on stdout. `name` tells the processes of one machine apart. */
export const createLog = ({ level, name }: { level: LogLevel; name: string }): Log =>
  pino({
    level,
    base: { name, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    redact: { paths: REDACTED_PATHS, censor: '[redacted]' },
  })
