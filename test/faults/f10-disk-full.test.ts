import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isOccupied } from '../../src/embedded/process-table.ts'
import { seededRandom } from '../support/random.ts'
import { faultTest } from './harness/fault.ts'
import { expectNoExits, startLoad, withServer, withStackOn } from './harness/load.ts'
import type { PostgresServer } from './harness/postgres-server.ts'

const DISK_MB = 160
const MIB = 1024 * 1024
const FULL_MS = 8_000
const POLL_MS = 100
const BLOCK = Buffer.alloc(MIB, 1)

const run = (command: string, ...args: string[]): string | null => {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8', timeout: 20_000 })
  return status === 0 ? null : `${command}: ${(error?.message ?? stderr).trim().split('\n')[0]}`
}

/** A small disk: memory, or an image file. Answers with why there is none where mounting is not allowed. */
const mountDisk = (directory: string): { unmount(): void } | { refused: string } => {
  const image = `${directory}.img`
  const unmount = (): void => {
    const failed = run('umount', directory)
    if (failed !== null) throw new Error(failed)
    rmSync(image, { force: true })
  }
  const noMemory = run('mount', '-t', 'tmpfs', '-o', `size=${DISK_MB}m,mode=755`, 'tmpfs', directory)
  if (noMemory === null) return { unmount }
  writeFileSync(image, Buffer.alloc(0))
  const noImage =
    run('truncate', '-s', `${DISK_MB}M`, image) ??
    run('mkfs.ext4', '-q', '-F', image) ??
    run('mount', '-o', 'loop', image, directory)
  if (noImage === null) return { unmount }
  rmSync(image, { force: true })
  return { refused: `no small disk can be mounted (${noMemory}; ${noImage})` }
}

/** Until nothing fits any more; again and again, as PostgreSQL frees a little at each checkpoint. */
const keepFull = (directory: string) => {
  const file = path.join(directory, 'ballast')
  const timer = setInterval(() => {
    try {
      while (statfsSync(directory).bavail > 0) writeFileSync(file, BLOCK, { flag: 'a' })
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    }
  }, POLL_MS)
  return {
    free(): void {
      clearInterval(timer)
      rmSync(file, { force: true })
    },
  }
}

/** A server whose log cannot be written gives up (PANIC); whoever runs one starts it again, and so does this. */
const superviseServer = (server: PostgresServer) => {
  let going = true
  const ended = (async () => {
    while (going) {
      // on a full disk it may not start: then again
      if (!isOccupied(server.data)) await server.start().catch(() => {})
      await sleep(POLL_MS)
    }
  })()
  return {
    stop: async (): Promise<void> => {
      going = false
      await ended
    },
  }
}

faultTest(
  'F10',
  'the disk of PostgreSQL is full: 503 and no false 202; when there is space again it goes on, and nobody restarts a process',
  { short: null, long: 5 },
  async (fault) => {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-disk-'))
    const disk = mountDisk(directory)
    if ('refused' in disk) return fault.skip(disk.refused)
    try {
      // a small log: the data is what fills the disk, or the log is
      const settings = { max_wal_size: '64MB', min_wal_size: '32MB', fsync: 'on' }
      await withServer({ directory, settings }, (server) =>
        withStackOn(server, { apis: 1, workers: 2, random: seededRandom(fault.seed) }, (stack) =>
          fault.each(async ({ seed }) => {
            const supervisor = superviseServer(server)
            const load = startLoad(stack, { name: `f10-${seed}`, items: 40, clients: 3, everyMs: 10 })
            await load.more(6)
            const ballast = keepFull(directory)
            const refusedBefore = load.answers.get(503) ?? 0
            const giveUpAt = performance.now() + 120_000
            while ((load.answers.get(503) ?? 0) < refusedBefore + 5) {
              if (performance.now() > giveUpAt) throw new Error('a full disk was not noticed')
              await sleep(POLL_MS)
            }
            await sleep(FULL_MS)
            ballast.free()
            await load.more(6)
            await load.stop()
            await supervisor.stop()
            await load.expectWhole()
            expectNoExits(stack)
          }),
        ),
      )
    } finally {
      disk.unmount()
      rmdirSync(directory)
    }
  },
)
