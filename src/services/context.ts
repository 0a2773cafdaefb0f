import type { Counts, OperationStatus } from '../domain/operation.ts'
import type { OperationType } from '../domain/operation-type.ts'
import type { PrivateAddresses } from '../domain/webhook.ts'
import type { Database } from '../storage/database.ts'
import type { WakeUps } from '../storage/wake-ups.ts'

/** The types of this process, as services need them. `operation-types/registry.ts` is one. */
export interface Types {
  get(name: string): OperationType | undefined
  list(): OperationType[]
}

/** What use cases work with. Made once by the entry file. */
export interface ServiceContext {
  database: Database
  types: Types
  wakeUps: WakeUps
  /** Absent: no secret to sign webhooks with is set, so a `callback_url` is refused. */
  webhooks?: { privateAddresses: PrivateAddresses }
  /** Told of each operation that this process has made final, after the commit; a crash in between leaves it untold. */
  ended?: (end: OperationEnd) => void
}

export interface OperationEnd {
  operationId: string
  type: string
  status: OperationStatus
  counts: Counts
  /** Since it was accepted. */
  tookMs: number
  /** Stored with the operation. */
  traceparent: string | null
}
