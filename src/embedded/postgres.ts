import { realpathSync } from 'node:fs'
import path from 'node:path'
import type { Log } from '../log.ts'
import { chooseAccount } from './account.ts'
import { findBinaries } from './binaries.ts'
import {
  type Cluster,
  ensureCluster,
  ensureRunning,
  openDataDir,
  type RunningServer,
  readPassword,
  stopServer,
} from './cluster.ts'
import { registerUser, unregisterUser, withLock } from './occupancy.ts'
import { worksIn } from './process-table.ts'

/**
 * A real PostgreSQL for a laptop: made on the first start, adopted when it runs already, started again when it dies,
 * and stopped by its last user. It listens on 127.0.0.1 only and asks for a random password.
 */
export interface EmbeddedPostgres {
  /** Carries the password: never log it. */
  url: string
  /** True when the server was running already. */
  adopted: boolean
  /** Stops the server unless another process uses it; returns when nothing of it is left. */
  stop(): Promise<void>
}

export interface EmbeddedPostgresOptions {
  dataDir: string
  log: Pick<Log, 'info' | 'warn' | 'error'>
  /** Server settings on top of ours, used when this call starts the server. */
  settings?: Readonly<Record<string, string>>
}

const WATCH_EVERY_MS = 500

export const startEmbeddedPostgres = async (options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
  openDataDir(options.dataDir)
  const dataDir = realpathSync(options.dataDir)
  const directory = path.join(dataDir, 'postgres')
  const account = chooseAccount(directory)
  const { log } = options

  const open = async () => {
    const binaries = await findBinaries(account, dataDir)
    const cluster: Cluster = { dataDir, directory, account, binaries, settings: options.settings ?? {} }
    await ensureCluster(cluster)
    const server = await ensureRunning(cluster, null)
    return { cluster, server, userFile: registerUser(dataDir) }
  }
  const { cluster, server, userFile } = await withLock(dataDir, open)
  log.info({ port: server.port, postmaster: server.pid, adopted: server.adopted }, 'embedded PostgreSQL runs')

  const watch = watchServer(cluster, server, log)
  return {
    url: `postgres://opledger:${readPassword(dataDir)}@127.0.0.1:${server.port}/opledger`,
    adopted: server.adopted,
    async stop() {
      await watch.stop()
      await withLock(dataDir, async () => {
        if (unregisterUser(dataDir, userFile)) await stopServer(cluster)
      })
    },
  }
}

/** Nobody would find it on another port: there it is stopped again, so that the next try can get this one. */
const runOnPort = async (cluster: Cluster, port: number): Promise<RunningServer> => {
  const server = await ensureRunning(cluster, port)
  if (server.port === port) return server
  await stopServer(cluster)
  throw new Error(`port ${port} is taken by another process`)
}

/** Starts a server that died again, on its own port: everybody has that URL. Never gives up. */
const watchServer = (cluster: Cluster, first: RunningServer, log: EmbeddedPostgresOptions['log']) => {
  let pid = first.pid
  let restart: Promise<void> | null = null

  const revive = async (): Promise<void> => {
    log.warn({ postmaster: pid }, 'embedded PostgreSQL died, starting it again')
    try {
      const server = await withLock(cluster.dataDir, () => runOnPort(cluster, first.port))
      pid = server.pid
      log.info({ port: server.port, postmaster: pid }, 'embedded PostgreSQL runs again')
    } catch (error) {
      log.error({ err: error }, 'embedded PostgreSQL could not be started again')
    } finally {
      restart = null
    }
  }
  const timer = setInterval(() => {
    if (restart === null && !worksIn(pid, cluster.directory)) restart = revive()
  }, WATCH_EVERY_MS)
  timer.unref()

  return {
    async stop() {
      clearInterval(timer)
      await restart
    },
  }
}
