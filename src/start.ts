import { setTimeout as sleep } from 'node:timers/promises'
import { type Config, childEnvironment, loadConfigFromProcess, localUrl } from './config.ts'
import { ConfigurationError } from './domain/errors.ts'
import { type SupervisedChild, superviseChild } from './embedded/child-process.ts'
import { buildConsoleInBackground, type ConsoleBuild } from './embedded/console-build.ts'
import { keepSecret } from './embedded/kept-secret.ts'
import { startEmbeddedPostgres } from './embedded/postgres.ts'
import { canListen } from './embedded/postmaster.ts'
import { describeStart } from './embedded/welcome.ts'
import { createLog, type Log } from './log.ts'
import { loadOperationTypes } from './operation-types/registry.ts'
import { onShutdown, runEntry, type Shutdown } from './shutdown.ts'
import { migrate } from './storage/migrate.ts'

/**
 * Everything on one machine: PostgreSQL (embedded, unless DATABASE_URL names one) → migrations → api and workers as
 * real processes. It leaves in the opposite order and leaves nothing behind, also when told to during the boot.
 */
const CHILD_GRACE_MS = 25_000
/** Children, then the server's own fast and immediate stop. */
const TOTAL_GRACE_MS = 90_000
const READY_POLL_MS = 100
const READY_REQUEST_MS = 2_000
const READY_WARN_MS = 30_000

/** Thrown between the steps of a boot that was told to stop. */
class BootAborted extends Error {}

const waitUntilReady = async (url: string, shutdown: Shutdown, log: Log): Promise<void> => {
  let warnAt = performance.now() + READY_WARN_MS
  for (;;) {
    if (shutdown.requested) throw new BootAborted()
    try {
      if ((await fetch(url, { signal: AbortSignal.timeout(READY_REQUEST_MS) })).ok) return
    } catch {
      // Not listening yet, or not answering: both end, or the child dies and is started again.
    }
    if (performance.now() > warnAt) {
      log.warn({ url }, 'the api is not ready yet')
      warnAt += READY_WARN_MS
    }
    await sleep(READY_POLL_MS)
  }
}

const refuseBusyPort = async ({ host, port }: Config): Promise<void> => {
  if ((await canListen(host, port)) === null) {
    throw new ConfigurationError(`PORT: ${port} on ${host} cannot be listened on; stop what uses it, or set PORT`)
  }
}

const main = async (): Promise<void> => {
  const config = loadConfigFromProcess('start')
  const log = createLog({ level: config.logLevel, name: 'start' })
  const children: SupervisedChild[] = []
  let stopDatabase: () => Promise<void> = async () => {}
  let boot: Promise<void> = Promise.resolve()
  let consoleBuild: ConsoleBuild | null = null

  const shutdown = onShutdown(
    async (reason) => {
      log.info({ reason }, 'stopping')
      consoleBuild?.stop()
      await boot.catch(() => {})
      await Promise.all(children.map((child) => child.stop(CHILD_GRACE_MS)))
      await stopDatabase()
      log.info('stopped')
    },
    {
      graceMs: TOTAL_GRACE_MS,
      onNow: () => {
        for (const child of children) child.kill()
      },
      onError: (error) => log.error({ err: error }, 'could not stop cleanly'),
    },
  )

  const fail = (message: string): void => {
    if (!shutdown.requested) process.stderr.write(`opledger: ${message}\n`)
    shutdown.request(1)
  }

  const bootAll = async (): Promise<void> => {
    await refuseBusyPort(config)
    // a bad type file is told before a database is made for it
    await (await loadOperationTypes({ paths: config.types, env: config.env, secrets: config.secret })).close()
    let { databaseUrl } = config
    if (databaseUrl === null) {
      const server = await startEmbeddedPostgres({ dataDir: config.dataDir, log })
      stopDatabase = server.stop
      databaseUrl = server.url
    }
    if (shutdown.requested) throw new BootAborted()
    await migrate({ url: config.directDatabaseUrl ?? databaseUrl })
    if (shutdown.requested) throw new BootAborted()

    const webhookSecretFile = config.webhookSecrets.length > 0 ? null : keepSecret(config.dataDir, 'webhook-secret')
    const downloadSecretFile = config.downloadSecret === null ? keepSecret(config.dataDir, 'download-secret') : null
    const env = childEnvironment({ ...config, databaseUrl, webhookSecretFile, downloadSecretFile })
    const names = ['api', ...Array<'worker'>(config.workers).fill('worker')] as const
    for (const name of names) children.push(superviseChild({ name, env, log, onConfigurationError: fail }))
    const base = localUrl(config.host, config.port)
    await waitUntilReady(`${base}/readyz`, shutdown, log)
    consoleBuild = buildConsoleInBackground(log)
    process.stdout.write(await describeStart(config, webhookSecretFile))
  }

  boot = bootAll()
  await boot.catch((error: unknown) => {
    if (error instanceof BootAborted) return
    if (error instanceof ConfigurationError) return fail(error.message)
    log.error({ err: error }, 'could not start')
    fail(error instanceof Error ? error.message : String(error))
  })
}

await runEntry(main, 1)
