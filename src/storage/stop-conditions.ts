import type { Connection } from './connection.ts'

/** A running operation whose stop conditions are armed, with the figures that they speak of. */
export interface ArmedOperation {
  tenantId: number
  operationId: string
  type: string
  /** A replay or a compensation: the type's own conditions guard it. */
  isGuarded: boolean
  /** The operation's own conditions, besides the type's. */
  stopIf: string[]
  uncertain: number
  rejected: number
  /** Items with an outcome. */
  ended: number
}

/** Before every other one. */
export const FIRST_OPERATION: Pick<ArmedOperation, 'tenantId' | 'operationId'> = {
  tenantId: 0,
  operationId: '00000000-0000-0000-0000-000000000000',
}

/** A page of the replays and compensations that run and of the operations with conditions of their own, over all tenants. */
export const readArmedOperations = (
  { sql }: Connection,
  after: Pick<ArmedOperation, 'tenantId' | 'operationId'>,
  limit: number,
): Promise<ArmedOperation[]> =>
  sql<ArmedOperation>`
    select o.tenant_id as "tenantId", o.id as "operationId", o.type,
      o.replay_of is not null or o.compensates is not null as "isGuarded",
      o.stop_if as "stopIf", s.uncertain, s.rejected, s.ended
    from operations o, lateral (
      select coalesce(sum(uncertain), 0)::float8 as uncertain,
        coalesce(sum(failed_validation_rejected), 0)::float8 as rejected,
        coalesce(sum(applied + skipped + failed + uncertain), 0)::float8 as ended
      from operation_shards where tenant_id = o.tenant_id and operation_id = o.id) s
    where o.completed_at is null and o.status = 'running'
      and (o.replay_of is not null or o.compensates is not null or o.stop_if <> '[]')
      and (o.tenant_id, o.id) > (${after.tenantId}::int, ${after.operationId}::uuid)
    order by o.tenant_id, o.id limit ${limit}`
