import type { Connection } from './connection.ts'

/** Since when parts of an operation are gone (retention.ts); null: they are there. */
export interface KeptParts {
  itemsPurgedAt: string | null
  ledgerPurgedAt: string | null
}

/** Null: no such operation. */
export const readKeptParts = async (
  { sql }: Connection,
  tenantId: number,
  operationId: string,
): Promise<KeptParts | null> => {
  const [row] = await sql<KeptParts>`
    select items_purged_at as "itemsPurgedAt", ledger_purged_at as "ledgerPurgedAt"
    from operations where tenant_id = ${tenantId} and id = ${operationId}::uuid`
  return row ?? null
}
