import { loadConfigFromProcess } from './config.ts'
import { ConfigurationError } from './domain/errors.ts'
import { startWatchdog } from './engine/watchdog.ts'
import { keepHeapSmall } from './heap.ts'
import type { Services } from './http/deps.ts'
import { watchPressure } from './http/pressure.ts'
import { buildServer } from './http/server.ts'
import { createLog } from './log.ts'
import { openObjectStore } from './objects/open-object-store.ts'
import { loadOperationTypes } from './operation-types/registry.ts'
import { openServiceManager } from './service-manager.ts'
import { assembleServices } from './services/assemble.ts'
import { ledgerSource } from './services/ledger-source.ts'
import { logEnds } from './services/operation-end.ts'
import { onShutdown, runEntry } from './shutdown.ts'
import { openDatabase } from './storage/database.ts'
import { refuseNewerSchema } from './storage/migrate.ts'
import { openWakeUps } from './storage/wake-ups.ts'
import { openTracing } from './tracing.ts'

/** Of the database. Most clients and proxies give up after 30 s: an answer has to come before. */
const STATEMENT_MS = 15_000
/** After `readyz` says 503, requests are served for so long, so that a load balancer that looks each second looks away first. */
const DRAIN_NOTICE_MS = 1_500
/** Then whoever still holds a connection, such as a download that nobody reads, is cut off: it must not hold up the drain. */
const CLOSE_PATIENCE_MS = 10_000
const PORT_PATIENCE_MS = 5_000
const PORT_RETRY_MS = 200

/** A predecessor that is just leaving may still hold the port; somebody else keeps it. */
const listen = async (server: Awaited<ReturnType<typeof buildServer>>, host: string, port: number): Promise<void> => {
  const until = performance.now() + PORT_PATIENCE_MS
  for (;;) {
    try {
      await server.listen({ host, port })
      return
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : null
      if (code !== 'EADDRINUSE') throw error
      if (performance.now() > until) {
        throw new ConfigurationError(`PORT: ${port} on ${host} is in use by another program: set PORT to a free one`, {
          cause: error,
        })
      }
      await new Promise((resolve) => setTimeout(resolve, PORT_RETRY_MS))
    }
  }
}

/** The api process: config → parts → listen → drain. */
await runEntry(async () => {
  keepHeapSmall()
  const config = loadConfigFromProcess('api')
  const log = createLog({ level: config.logLevel, name: 'api' })
  const database = openDatabase({
    url: config.databaseUrl,
    size: config.databasePool,
    name: 'opledger api',
    prepare: config.databasePrepare,
    statementMs: STATEMENT_MS,
  })
  const types = await loadOperationTypes({
    paths: config.types,
    env: config.env,
    secrets: config.secret,
    ledger: ledgerSource(database),
  })
  const objects = await openObjectStore(config.artifactStore)
  await refuseNewerSchema(database)
  const wakeUps = openWakeUps({
    url: config.databaseUrl,
    listenUrl: config.directDatabaseUrl ?? config.databaseUrl,
    name: 'opledger api',
    onFault: (error) => log.warn({ err: error }, 'listening for wake-ups failed; polling goes on'),
  })
  if (config.downloadSecret === null) {
    log.warn('OPLEDGER_DOWNLOAD_SECRET is not set: operations that make artifacts are refused')
  }
  const tracing = await openTracing(config.tracing, 'api')
  const context = {
    database,
    types,
    wakeUps,
    ended: logEnds(log),
    ...(config.webhookSecrets.length > 0 && { webhooks: { privateAddresses: config.webhookPrivateAddresses } }),
  }
  const services = assembleServices(context, { objects, secret: config.downloadSecret })
  const state = { draining: false }
  const { pressure, close: ignorePressure } = watchPressure(log, () => database.queuedMs())
  const server = await buildServer({
    services: services satisfies Services,
    config,
    state,
    log,
    pressure,
    ...(tracing && { tracing }),
  })
  const watchdog = startWatchdog(log)
  // its event loop turns, or it is killed: nothing else can stand still here, as each request has its deadline
  const manager = openServiceManager({
    settings: config.serviceManager,
    log,
    stuck: () => null,
    onStuck: () => {},
  })

  onShutdown(
    async (reason) => {
      log.info({ reason }, 'draining')
      manager.stopping()
      state.draining = true
      await new Promise((resolve) => setTimeout(resolve, DRAIN_NOTICE_MS))
      const cutOff = setTimeout(() => server.server.closeAllConnections(), CLOSE_PATIENCE_MS)
      await server.close()
      clearTimeout(cutOff)
      ignorePressure()
      await services.close()
      await wakeUps.close()
      await database.close()
      await types.close()
      await objects.close()
      await tracing?.close()
      await watchdog.stop()
      manager.close()
      log.info('stopped')
    },
    { onError: (error) => log.error({ err: error }, 'the drain failed') },
  )
  await listen(server, config.host, config.port)
  manager.ready()
})
