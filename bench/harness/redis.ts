/** Redis for BullMQ: a server of our own that appends to its log and syncs it each second. */
import { spawn, spawnSync } from 'node:child_process'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { choosePort } from '../../src/embedded/postmaster.ts'
import type { Closers } from './closers.ts'
import { stopChild } from './part.ts'

const READY_MS = 5_000
const LOOK_MS = 20

const answers = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1')
    const end = (open: boolean): void => {
      socket.destroy()
      resolve(open)
    }
    socket.once('connect', () => end(true))
    socket.once('error', () => end(false))
  })

/** Its port, or why there is none. */
export const startRedis = async (
  closers: Closers,
  directory: string,
): Promise<{ port: number } | { reason: string }> => {
  if (spawnSync('redis-server', ['--version']).error) {
    return { reason: 'redis-server is not installed; bench/set-up.sh installs it' }
  }
  const port = await choosePort(null)
  const settings = ['--port', String(port), '--bind', '127.0.0.1', '--dir', directory, '--save', '']
  const log = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--loglevel', 'warning']
  const child = spawn('redis-server', [...settings, ...log], { stdio: 'ignore' })
  closers.add(() => stopChild(child))
  const giveUpAt = performance.now() + READY_MS
  while (!(await answers(port))) {
    if (child.exitCode !== null || performance.now() > giveUpAt) return { reason: 'redis-server did not start' }
    await sleep(LOOK_MS)
  }
  return { port }
}
