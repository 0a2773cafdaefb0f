import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { loadConfigFromProcess } from './config.ts'
import { isRemote } from './domain/operation-type.ts'
import { WORKER_BEAT_MS } from './engine/heartbeat.ts'
import { startEngine } from './engine/loop.ts'
import { openTypeMeter } from './engine/type-meter.ts'
import { startWatchdog } from './engine/watchdog.ts'
import { keepHeapSmall } from './heap.ts'
import { createLog } from './log.ts'
import { startMaintenance } from './maintenance/schedule.ts'
import { openObjectStore } from './objects/open-object-store.ts'
import { loadOperationTypes } from './operation-types/registry.ts'
import { codeVersion } from './operation-types/version.ts'
import { openServiceManager } from './service-manager.ts'
import { ledgerSource } from './services/ledger-source.ts'
import { logEnds } from './services/operation-end.ts'
import { onShutdown, runEntry } from './shutdown.ts'
import { openDatabase } from './storage/database.ts'
import { refuseNewerSchema } from './storage/migrate.ts'
import { openWakeUps } from './storage/wake-ups.ts'
import { openTracing } from './tracing.ts'

/** Heartbeats, stops and the ends of leases: two statements at once, never behind work. */
const CONTROL_CONNECTIONS = 2

/** A worker process: config → parts → loop → drain. */
await runEntry(async () => {
  keepHeapSmall()
  const config = loadConfigFromProcess('worker')
  const id = randomUUID()
  const log = createLog({ level: config.logLevel, name: 'worker' }).child({ worker_id: id })
  const connect = (name: string, size: number) =>
    openDatabase({ url: config.databaseUrl, size, name, prepare: config.databasePrepare })
  const database = connect('opledger worker', Math.max(config.databasePool, config.workerConcurrency * 2 + 2))
  const control = connect('opledger worker control', CONTROL_CONNECTIONS)
  const types = await loadOperationTypes({
    paths: config.types,
    env: config.env,
    secrets: config.secret,
    ledger: ledgerSource(database),
  })
  const objects = await openObjectStore(config.artifactStore)
  await refuseNewerSchema(control)
  const wakeUps = openWakeUps({
    url: config.databaseUrl,
    listenUrl: config.directDatabaseUrl ?? config.databaseUrl,
    name: 'opledger worker',
    onFault: (error) => log.warn({ err: error }, 'listening for wake-ups failed; polling goes on'),
  })
  const tracing = await openTracing(config.tracing, 'worker')
  const ended = logEnds(log)
  const meter = openTypeMeter({ database, workerId: id, log })
  const engine = await startEngine({
    database,
    control,
    types: types.list(),
    wakeUps,
    meter,
    objects,
    presence: {
      id,
      host: hostname(),
      pid: process.pid,
      codeVersion,
      types: types
        .list()
        .filter((type) => !isRemote(type))
        .map((type) => `${type.name}@${type.version}`),
      beatMs: WORKER_BEAT_MS,
    },
    concurrency: config.workerConcurrency,
    log,
    ended,
    ...(tracing && { tracing }),
  })
  const maintenance = startMaintenance({ database, types, wakeUps, objects, ended, auditDays: config.auditDays }, log, {
    secrets: config.webhookSecrets,
    privateAddresses: config.webhookPrivateAddresses,
  })
  const watchdog = startWatchdog(log)
  const manager = openServiceManager({
    settings: config.serviceManager,
    log,
    stuck: () => engine.stuck(),
    // what hangs keeps the drain from its end, and its grace ends the process
    onStuck: () => shutdown.request(1),
  })
  log.info({ types: types.list().map((type) => type.name) }, 'worker started')

  const shutdown = onShutdown(
    async (reason) => {
      log.info({ reason }, 'draining')
      manager.stopping()
      await engine.drain()
      await maintenance.stop()
      await meter.stop()
      await tracing?.close()
      await watchdog.stop()
      manager.close()
      await wakeUps.close()
      await database.close()
      await control.close()
      await types.close()
      await objects.close()
      log.info('stopped')
    },
    { onError: (error) => log.error({ err: error }, 'the drain failed') },
  )
  manager.ready()
})
