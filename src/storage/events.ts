import type { Connection } from './connection.ts'

export interface EventRow {
  version: number
  kind: string
  status: string
  at: string
  actor: string
  reason: string | null
}

export const listEventRows = (
  { sql }: Connection,
  tenantId: number,
  operationId: string,
  afterVersion: number | null,
  limit: number,
): Promise<EventRow[]> =>
  sql<EventRow>`
    select version::float8 as version, kind, status, at, actor, reason
    from operation_events
    where tenant_id = ${tenantId} and operation_id = ${operationId} and version > ${afterVersion ?? -1}::bigint
    order by version limit ${limit}`
