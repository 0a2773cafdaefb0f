import type { Log } from '../log.ts'
import { removeAbandonedUpload } from '../services/abandoned-uploads.ts'
import type { ServiceContext } from '../services/context.ts'
import { cancelBySystem } from '../services/stop.ts'
import type { Connection } from '../storage/connection.ts'
import {
  ensureLedgerPartitions,
  forgetGoneWorkers,
  forgetOldCallbacks,
  forgetOldDryRuns,
  forgetOldMinutes,
  forgetUnusedPreflights,
} from '../storage/housekeeping.ts'
import { readPassedDeadlines } from '../storage/stops.ts'
import { forgetOldDeliveries } from '../storage/webhook-outbox.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const DEADLINES_EVERY_MS = 1_000
const DEADLINES_PER_RUN = 100
const UPLOADS_EVERY_MS = 60_000
const HOUSEKEEPING_EVERY_MS = 10 * 60_000

/** A deadline that passed is a cancel by `system:deadline`: it stops at a safe boundary and tells the truth, like any other. */
export const deadlines = (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  log: Pick<Log, 'warn'>,
): MaintenanceService => ({
  name: 'deadlines',
  everyMs: DEADLINES_EVERY_MS,
  async runOnce() {
    const passed = await context.database.query((connection) => readPassedDeadlines(connection, DEADLINES_PER_RUN))
    const cancelled = await workOnEach(passed, log, 'enforcing a deadline', (key) =>
      cancelBySystem(context, key, 'system:deadline', 'the deadline passed'),
    )
    return { more: passed.length === DEADLINES_PER_RUN && cancelled > 0 }
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

const CHORES: readonly { name: string; run: (connection: Connection) => Promise<void> }[] = [
  { name: 'partitions', run: ensureLedgerPartitions },
  { name: 'workers', run: forgetGoneWorkers },
  { name: 'minutes', run: forgetOldMinutes },
  { name: 'preflights', run: forgetUnusedPreflights },
  { name: 'callbacks', run: forgetOldCallbacks },
  { name: 'webhook-deliveries', run: forgetOldDeliveries },
  { name: 'dry-runs', run: forgetOldDryRuns },
]

/** Makes ledger partitions ahead of time, and forgets what only served the present. One chore does not take another with it. */
export const housekeeping = (
  { database }: Pick<ServiceContext, 'database'>,
  log: Pick<Log, 'warn'>,
): MaintenanceService => ({
  name: 'housekeeping',
  everyMs: HOUSEKEEPING_EVERY_MS,
  async runOnce() {
    await workOnEach(CHORES, log, 'housekeeping', ({ run }) => database.query(run))
    return { more: false }
  },
})
