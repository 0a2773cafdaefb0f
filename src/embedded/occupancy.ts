import { linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isAlive, ownIdentity, type ProcessIdentity } from './process-table.ts'

/**
 * Who uses a data directory. Two `start` in one directory share one server: `lock` lets one process at a time start or
 * stop it, and a file per user tells the last one that it is the last. Files of processes that died count for nothing.
 */
const LOCK_WAIT_MS = 120_000
const LOCK_POLL_MS = 50

let sequence = 0

const readIdentity = (file: string): ProcessIdentity | null => {
  try {
    const [pid, startedAt] = readFileSync(file, 'utf8').split(' ')
    return { pid: Number(pid), startedAt: startedAt ? startedAt : null }
  } catch {
    return null
  }
}

/** Writes our identity under a name of its own, so that what others read is always whole. */
const writeIdentity = (file: string): void => {
  const { pid, startedAt } = ownIdentity()
  writeFileSync(file, `${pid} ${startedAt ?? ''}`, { mode: 0o600 })
}

const uniqueName = (): string => `${process.pid}-${Date.now().toString(36)}-${sequence++}`

const tryLock = (lockFile: string): boolean => {
  const candidate = `${lockFile}.${uniqueName()}`
  writeIdentity(candidate)
  try {
    linkSync(candidate, lockFile)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return false
  } finally {
    rmSync(candidate, { force: true })
  }
}

/** Takes a dead holder's lock away. Another process may have done so first: then its lock is put back. */
const breakDeadLock = (lockFile: string): void => {
  const holder = readIdentity(lockFile)
  if (holder === null || isAlive(holder)) return
  const removed = `${lockFile}.${uniqueName()}.dead`
  try {
    renameSync(lockFile, removed)
    const taken = readIdentity(removed)
    if (taken !== null && isAlive(taken)) linkSync(removed, lockFile)
  } catch {
    // Somebody else was quicker; the next round sees whose lock it is.
  } finally {
    rmSync(removed, { force: true })
  }
}

/** Runs `work` while no other process, and no other caller in this one, holds the directory's lock. */
export const withLock = async <T>(dataDir: string, work: () => Promise<T>): Promise<T> => {
  const lockFile = path.join(dataDir, 'lock')
  const giveUpAt = performance.now() + LOCK_WAIT_MS
  while (!tryLock(lockFile)) {
    breakDeadLock(lockFile)
    if (performance.now() > giveUpAt) {
      throw new Error(`${lockFile} is held by process ${readIdentity(lockFile)?.pid} for over ${LOCK_WAIT_MS / 1000} s`)
    }
    await sleep(LOCK_POLL_MS)
  }
  try {
    return await work()
  } finally {
    rmSync(lockFile, { force: true })
  }
}

/** Call under the lock. Returns the file that says that we use the directory. */
export const registerUser = (dataDir: string): string => {
  const directory = path.join(dataDir, 'users')
  mkdirSync(directory, { recursive: true })
  const file = path.join(directory, uniqueName())
  writeIdentity(file)
  return file
}

/** Call under the lock. Removes our file and those of the dead; true when nobody is left. */
export const unregisterUser = (dataDir: string, ownFile: string): boolean => {
  rmSync(ownFile, { force: true })
  const directory = path.join(dataDir, 'users')
  let alive = 0
  for (const name of readdirSync(directory)) {
    const file = path.join(directory, name)
    const user = readIdentity(file)
    if (user !== null && isAlive(user)) alive++
    else rmSync(file, { force: true })
  }
  return alive === 0
}
