import { removeAbandonedUpload } from '../services/abandoned-uploads.ts'
import type { ServiceContext } from '../services/context.ts'
import { cancelBySystem } from '../services/stop.ts'
import {
  ensureLedgerPartitions,
  forgetGoneWorkers,
  forgetOldMinutes,
  forgetUnusedPreflights,
} from '../storage/housekeeping.ts'
import { readPassedDeadlines } from '../storage/stops.ts'
import type { MaintenanceService } from './service.ts'

const DEADLINES_EVERY_MS = 1_000
const DEADLINES_PER_RUN = 100
const UPLOADS_EVERY_MS = 60_000
const HOUSEKEEPING_EVERY_MS = 10 * 60_000

/** A deadline that passed is a cancel by `system:deadline`: it stops at a safe boundary and tells the truth, like any other. */
export const deadlines = (context: Pick<ServiceContext, 'database' | 'wakeUps'>): MaintenanceService => ({
  name: 'deadlines',
  everyMs: DEADLINES_EVERY_MS,
  async runOnce() {
    const passed = await context.database.query((connection) => readPassedDeadlines(connection, DEADLINES_PER_RUN))
    for (const key of passed) await cancelBySystem(context, key, 'system:deadline', 'the deadline passed')
    return { more: passed.length === DEADLINES_PER_RUN }
  },
})

/** Removes what uploads left behind that nobody continued: their clients or their api are gone. */
export const abandonedUploads = ({ database }: Pick<ServiceContext, 'database'>): MaintenanceService => ({
  name: 'abandoned-uploads',
  everyMs: UPLOADS_EVERY_MS,
  async runOnce() {
    return { more: await removeAbandonedUpload({ database }) }
  },
})

/** Makes ledger partitions ahead of time, and forgets what only served the present. */
export const housekeeping = ({ database }: Pick<ServiceContext, 'database'>): MaintenanceService => ({
  name: 'housekeeping',
  everyMs: HOUSEKEEPING_EVERY_MS,
  async runOnce() {
    await database.query(ensureLedgerPartitions)
    await database.query(forgetGoneWorkers)
    await database.query(forgetOldMinutes)
    await database.query(forgetUnusedPreflights)
    return { more: false }
  },
})
