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
}
