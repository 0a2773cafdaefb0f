import { loadConfigFromProcess } from './config.ts'
import type { Services } from './http/deps.ts'
import { buildServer } from './http/server.ts'
import { createLog } from './log.ts'
import { loadOperationTypes } from './operation-types/registry.ts'
import { assembleServices } from './services/assemble.ts'
import { onShutdown, runEntry } from './shutdown.ts'
import { openDatabase } from './storage/database.ts'
import { openWakeUps } from './storage/wake-ups.ts'

/** After `readyz` says 503, requests are served for so long, so that a load balancer can look away first. */
const DRAIN_NOTICE_MS = 500

/** The api process: config → parts → listen → drain. */
await runEntry(async () => {
  const config = loadConfigFromProcess('api')
  const log = createLog({ level: config.logLevel, name: 'api' })
  const types = await loadOperationTypes({ paths: config.types, env: config.env, secrets: config.secret })
  const database = openDatabase({
    url: config.databaseUrl,
    size: config.databasePool,
    name: 'opledger api',
    prepare: config.databasePrepare,
  })
  const wakeUps = openWakeUps({
    url: config.databaseUrl,
    name: 'opledger api',
    onFault: (error) => log.warn({ err: error }, 'listening for wake-ups failed; polling goes on'),
  })
  const services = assembleServices({ database, types, wakeUps })
  const state = { draining: false }
  const server = await buildServer({ services: services satisfies Services, config, state, log })

  onShutdown(
    async (reason) => {
      log.info({ reason }, 'draining')
      state.draining = true
      await new Promise((resolve) => setTimeout(resolve, DRAIN_NOTICE_MS))
      await server.close()
      services.close()
      await wakeUps.close()
      await database.close()
      await types.close()
      log.info('stopped')
    },
    { onError: (error) => log.error({ err: error }, 'the drain failed') },
  )
  await server.listen({ host: config.host, port: config.port })
})
