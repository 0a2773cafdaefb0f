import type { Log } from '../log.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import type { ServiceContext } from '../services/context.ts'
import type { Database } from '../storage/database.ts'
import type { WakeUps } from '../storage/wake-ups.ts'
import type { Tracing } from '../tracing.ts'
import type { TypeMeter } from './type-meter.ts'

/** What a run works with. */
export interface RunContext {
  database: Database
  wakeUps: WakeUps
  meter: TypeMeter
  /** Where artifacts are kept. */
  objects: ObjectStore
  log: Log
  /** As in ServiceContext. */
  ended?: NonNullable<ServiceContext['ended']>
  /** Absent: nobody traces. */
  tracing?: Tracing
}
