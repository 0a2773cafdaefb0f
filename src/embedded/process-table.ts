import { readdirSync, readFileSync, readlinkSync, realpathSync } from 'node:fs'

/**
 * Which processes exist. A pid alone proves nothing: it is used again, soon so in a container, and a zombie still has
 * one. So a process is named by pid and start time where `/proc` tells it; elsewhere by the pid.
 */
export interface ProcessIdentity {
  pid: number
  /** Clock ticks after boot, as text; null where there is no `/proc`. */
  startedAt: string | null
}

interface ProcStat {
  state: string
  startedAt: string
}

const hasProc = (): boolean => process.platform === 'linux'

const readStat = (pid: number): ProcStat | null => {
  try {
    // The command name may contain anything, also spaces and brackets: fields are counted after its last bracket.
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return { state: fields[0] ?? '', startedAt: fields[19] ?? '' }
  } catch {
    return null
  }
}

const answersToSignalZero = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

export const ownIdentity = (): ProcessIdentity => ({
  pid: process.pid,
  startedAt: hasProc() ? (readStat(process.pid)?.startedAt ?? null) : null,
})

export const isAlive = ({ pid, startedAt }: ProcessIdentity): boolean => {
  if (!hasProc()) return answersToSignalZero(pid)
  const stat = readStat(pid)
  return stat !== null && stat.state !== 'Z' && (startedAt === null || stat.startedAt === startedAt)
}

/** True when `pid` runs with `directory` as its working directory, which PostgreSQL does in its data directory. */
export const worksIn = (pid: number, directory: string): boolean => {
  if (!hasProc()) return answersToSignalZero(pid)
  if (!isAlive({ pid, startedAt: null })) return false
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === realpathSync(directory)
  } catch {
    return false
  }
}

/** True while any process, for example a backend whose postmaster was killed, still works in `directory`. */
export const isOccupied = (directory: string): boolean =>
  hasProc() && readdirSync('/proc').some((name) => /^\d+$/.test(name) && worksIn(Number(name), directory))
