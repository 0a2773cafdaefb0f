import type { SupersedeReason } from '../domain/artifact.ts'
import type { Connection } from './connection.ts'

export interface ArtifactRow {
  tenantId: number
  id: string
  operationId: string
  type: string
  name: string
  contentType: string
  object: string
  sizeBytes: number
  /** Hex. */
  sha256: string
  publishedAt: string
  expiresAt: string
  expired: boolean
  supersededAt: string | null
  supersededBy: string | null
  supersedeReason: SupersedeReason | null
  /** Seconds since the epoch: the database's clock, and the end of the artifact. */
  nowSeconds: number
  expiresSeconds: number
}

type Named = { tenantId: number; operationId: string } | { id: string }

/** The artifact of an operation, or the one that a link names. Null: there is none. */
export const readArtifact = async ({ sql }: Connection, named: Named): Promise<ArtifactRow | null> => {
  const byLink = 'id' in named
  const [row] = await sql<ArtifactRow>`
    select tenant_id as "tenantId", id, operation_id as "operationId", type, name, content_type as "contentType", object,
      size_bytes::float8 as "sizeBytes", sha256, published_at as "publishedAt", expires_at as "expiresAt",
      expires_at <= now() as expired, superseded_at as "supersededAt", superseded_by as "supersededBy",
      supersede_reason as "supersedeReason", floor(extract(epoch from now()))::float8 as "nowSeconds",
      floor(extract(epoch from expires_at))::float8 as "expiresSeconds"
    from artifacts
    where id = ${byLink ? named.id : null}::uuid
      or (tenant_id = ${byLink ? null : named.tenantId}::int and operation_id = ${byLink ? null : named.operationId}::uuid)`
  return row ?? null
}

interface OperationName {
  tenantId: number
  operationId: string
}

/**
 * Takes operations that are over and may have objects left, and puts their next sweep off by `holdSeconds`: another janitor
 * then takes others, and if this one dies they come due again.
 */
export const takeDueWorkspaces = async (
  { sql }: Connection,
  { limit, holdSeconds }: { limit: number; holdSeconds: number },
): Promise<(OperationName & { stragglersPast: boolean })[]> => {
  const rows = await sql<{ tenant_id: number; operation_id: string; stragglers_past: boolean }>`
    with due as (
      select w.tenant_id, w.operation_id from artifact_workspaces w
        join operations o on o.tenant_id = w.tenant_id and o.id = w.operation_id
      where w.next_sweep_at <= now() and o.completed_at is not null
      order by w.next_sweep_at limit ${limit} for no key update of w skip locked)
    update artifact_workspaces w set next_sweep_at = now() + ${holdSeconds}::int * interval '1 second'
    from due d where w.tenant_id = d.tenant_id and w.operation_id = d.operation_id
    returning w.tenant_id, w.operation_id, w.swept_at is not null as stragglers_past`
  return rows.map((row) => ({
    tenantId: row.tenant_id,
    operationId: row.operation_id,
    stragglersPast: row.stragglers_past,
  }))
}

/** After the first sweep a last one follows; after that nothing can be left. */
export const endSweep = async (
  { sql }: Connection,
  workspace: OperationName & { stragglersPast: boolean },
  stragglerHours: number,
): Promise<void> => {
  if (workspace.stragglersPast) {
    await sql`
      delete from artifact_workspaces
      where tenant_id = ${workspace.tenantId} and operation_id = ${workspace.operationId}::uuid`
    return
  }
  await sql`
    update artifact_workspaces set swept_at = now(), next_sweep_at = now() + ${stragglerHours}::int * interval '1 hour'
    where tenant_id = ${workspace.tenantId} and operation_id = ${workspace.operationId}::uuid`
}

/** Objects that a row of the operation names and that have not been removed. */
export const readKeptObjects = async ({ sql }: Connection, operation: OperationName): Promise<Set<string>> => {
  const rows = await sql<{ object: string }>`
    select object from artifacts
    where tenant_id = ${operation.tenantId} and operation_id = ${operation.operationId}::uuid and removed_at is null`
  return new Set(rows.map((row) => row.object))
}

/** Artifacts that nobody can download any more, and whose objects are still there. */
export const readEndedArtifacts = async (
  { sql }: Connection,
  limit: number,
): Promise<{ tenantId: number; id: string; object: string }[]> => {
  const rows = await sql<{ tenant_id: number; id: string; object: string }>`
    (select tenant_id, id, object from artifacts
      where removed_at is null and expires_at <= now() order by expires_at limit ${limit})
    union
    (select tenant_id, id, object from artifacts
      where removed_at is null and superseded_at is not null order by superseded_at limit ${limit})
    limit ${limit}`
  return rows.map((row) => ({ tenantId: row.tenant_id, id: row.id, object: row.object }))
}

export const markRemoved = async ({ sql }: Connection, artifact: { tenantId: number; id: string }): Promise<void> => {
  await sql`
    update artifacts set removed_at = clock_timestamp()
    where tenant_id = ${artifact.tenantId} and id = ${artifact.id}::uuid and removed_at is null`
}
