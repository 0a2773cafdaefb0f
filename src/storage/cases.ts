import type { Audited } from '../domain/audit.ts'
import type { CaseCause } from '../domain/reconciliation.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

/** A case with the effect it is about, for whoever resolves it. */
export interface OpenCase {
  id: string
  operationId: string
  shard: number
  ord: number
  type: string
  itemKey: string
  step: string
  effectKey: string
  send: number
  cause: CaseCause
  resolution: string | null
  cancelled: boolean
  /** The effect takes another one back. */
  compensating: boolean
}

export const readCase = async ({ sql }: Connection, tenantId: number, caseId: string): Promise<OpenCase | null> => {
  const [row] = await sql<OpenCase>`
    select c.id, c.operation_id as "operationId", c.shard, c.ord, c.type, c.item_key as "itemKey",
      c.step, c.effect_key as "effectKey", c.send, c.cause, c.resolution, o.cancel_requested_at is not null as cancelled,
      o.compensates is not null as compensating
    from reconciliation_cases c join operations o on o.tenant_id = c.tenant_id and o.id = c.operation_id
    where c.tenant_id = ${tenantId} and c.id = ${caseId}::uuid`
  return row ?? null
}

/**
 * Closes a case that holds no item back (a suspected duplicate, a contradiction). False: somebody was first, or its item came
 * into doubt meanwhile and this has become the case that holds it back: closed by itself, the doubt would never end.
 */
export const closeCase = async (
  { sql }: Connection,
  close: Audited & {
    tenantId: number
    caseId: string
    resolution: 'applied' | 'not_applied'
    actor: string
    evidenceRef: string
    effectRef: string | null
    note: string | null
  },
): Promise<boolean> => {
  const rows = await sql`
    with c as (
      update reconciliation_cases set
        closed_at = clock_timestamp(), next_lookup_at = null, resolution = ${close.resolution}, resolved_by = ${close.actor},
        resolution_source = 'operator', evidence_ref = ${close.evidenceRef}, effect_ref = ${close.effectRef},
        note = coalesce(${close.note}, note)
      where tenant_id = ${close.tenantId} and id = ${close.caseId}::uuid and closed_at is null
        and cause in ('duplicate_suspected', 'contradiction')
      returning tenant_id),
    audit as (
      insert into audit_entries select a.* from c, audit_row(c.tenant_id, ${auditJson(close.audit)}::text::jsonb) a)
    select 1 from c`
  return rows.length > 0
}

/** A note of the person who resolved a case, which converge has closed; behind what was noted of the case before. */
export const noteCase = async ({ sql }: Connection, tenantId: number, caseId: string, note: string): Promise<void> => {
  await sql`
    update reconciliation_cases set note = concat_ws('; ', note, ${note}::text)
    where tenant_id = ${tenantId} and id = ${caseId}::uuid`
}
