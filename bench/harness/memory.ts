/** The memory of a process over a time: its resident set, read from /proc. */
import { existsSync, readFileSync } from 'node:fs'

const EVERY_MS = 200
const MEGABYTE = 1024 * 1024

export interface MemoryWatch {
  /** Ends the watch. In MB, in order. */
  stop(): number[]
}

/** Where the system does not tell, there is nothing to watch. */
export const canWatchMemory = (): boolean => existsSync('/proc/self/status')

const residentMegabytes = (pid: number): number => {
  const kilobytes = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return (Number(kilobytes ?? 0) * 1024) / MEGABYTE
}

export const watchMemory = (pid: number): MemoryWatch => {
  const seen: number[] = [residentMegabytes(pid)]
  const timer = setInterval(() => {
    try {
      seen.push(residentMegabytes(pid))
    } catch {
      clearInterval(timer) // the process has ended, and whoever watches is told so elsewhere
    }
  }, EVERY_MS)
  return {
    stop() {
      clearInterval(timer)
      return seen
    },
  }
}

/** How much higher the second half of a watch stood than the first: 1 is flat. One look alone has not grown. */
export const growth = (seen: readonly number[]): number => {
  if (seen.length < 2) return 1
  const middle = Math.ceil(seen.length / 2)
  return Math.max(...seen.slice(middle)) / Math.max(...seen.slice(0, middle))
}
