import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import type { OperationType } from '../../src/domain/operation-type.ts'
import { type Engine, startEngine } from '../../src/engine/loop.ts'
import { openTypeMeter } from '../../src/engine/type-meter.ts'
import { startMaintenance } from '../../src/maintenance/schedule.ts'
import type { WebhookSettings } from '../../src/maintenance/webhooks.ts'
import { NO_OBJECT_STORE, type ObjectStore } from '../../src/objects/object-store.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { openWakeUps } from '../../src/storage/wake-ups.ts'

export interface TestEngine extends Engine {
  workerId: string
  /** Messages that the engine logged, warnings and errors only. */
  logged(): string[]
}

/**
 * The engine of a worker in this process, as src/worker.ts puts it together. With `maintenance: false` nothing looks up,
 * sweeps or enforces deadlines. Work and heartbeats can reach the database by different ways (a proxy that pauses one).
 */
export const startTestEngine = async (options: {
  url: string
  controlUrl?: string
  types: readonly OperationType[]
  concurrency?: number
  maintenance?: boolean
  webhooks?: WebhookSettings
  objects?: ObjectStore
}): Promise<TestEngine> => {
  const { url, types, concurrency = 4, objects = NO_OBJECT_STORE } = options
  const workerId = randomUUID()
  const messages: string[] = []
  const log = pino({ level: 'warn', base: null }, { write: (line) => messages.push(JSON.parse(line).msg) })
  const database = openDatabase({ url, size: concurrency * 2 + 4, name: 'test worker' })
  const control = openDatabase({ url: options.controlUrl ?? url, size: 2, name: 'test worker control' })
  const wakeUps = openWakeUps({ url: options.controlUrl ?? url, name: 'test worker', onFault: () => {} })
  const meter = openTypeMeter({ database, workerId, log })
  const engine = await startEngine({
    database,
    control,
    types,
    wakeUps,
    meter,
    objects,
    presence: {
      id: workerId,
      host: 'test',
      pid: process.pid,
      codeVersion: 'c1',
      types: types.map((type) => `${type.name}@${type.version}`),
      beatMs: 2_000,
    },
    concurrency,
    log,
  })
  const registry = { get: (name: string) => types.find((type) => type.name === name), list: () => [...types] }
  const maintenance =
    options.maintenance === false
      ? null
      : startMaintenance(
          { database, types: registry, wakeUps, objects },
          log,
          options.webhooks ?? { secrets: [], privateAddresses: 'refuse' },
        )
  return {
    workerId,
    logged: () => [...messages],
    stuck: () => engine.stuck(),
    async drain() {
      await engine.drain()
      await maintenance?.stop()
      await meter.stop()
      await wakeUps.close()
      await database.close()
      await control.close()
    },
  }
}
