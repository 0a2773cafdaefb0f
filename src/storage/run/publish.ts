/**
 * The publish of an artifact: the last item of its operation, and the instant at which its file exists for anybody else.
 *
 *   chunk:     intent ─▶ object tmp/…/<ord>-<send> written ─▶ applied, with the object's name, size and hash
 *   publish:   intent ─▶ object artifacts/…/<id> assembled ─▶ applied + row in `artifacts`, one commit under the fence
 *   artifact:  published ─▶ superseded (a newer one, or a cancel that came later) | expired ─▶ object removed
 *
 * An object that no row names is nothing: nobody can reach it, and writing it twice does no harm. That is why an intent
 * that a lost worker left behind becomes `absent` and is tried again (chunk and publish alike), where an external effect
 * would be `uncertain`; why a late or a doubled write opens no case; and why a replay writes all chunks anew, under effect
 * keys of its own: the objects of its original are removed once that is over.
 *
 * Why a crash at each line is safe:
 *  before any object is written    `artifact_workspaces` names the operation already: the janitor finds what it left.
 *  a chunk half written            its effect is still an intent; the next holder writes another object (send + 1).
 *  a chunk written, not reported   the same.
 *  assembled, not committed        no row names the object; the next holder assembles another one.
 *  COMMIT's reply lost             the row names our object: it is read back, before anything is deleted.
 *  committed                       published exactly once: the row is unique per operation, and its effect is applied.
 *
 * Publish against cancel: both lock the shard row first. The cancel came first: `stop_requested` is set, the fence does not
 * hold, nothing is published, and everything is discarded. The publish came first: the cancel finds the row in its own
 * commit and supersedes it; the operation ends `completed_after_cancel`.
 *
 * Two publishes with one artifact key: they hold different shards, so an advisory lock on the key puts them in a row, taken
 * after the shard (L1) and by nobody else. The unique index over current artifacts would tell if it did not.
 */
import type { Connection, Sql } from '../connection.ts'
import type { Database } from '../database.ts'
import { type Converged, convergeFenced } from './converge.ts'
import type { Evidence } from './evidence.ts'
import type { ClaimedShard, Lease } from './lease.ts'

export interface NewArtifact {
  id: string
  type: string
  artifactKey: string
  name: string
  contentType: string
  object: string
  sizeBytes: number
  sha256: string
  keepDays: number
}

/** Says that the operation may have objects in the store, before the first of them is written. */
export const openWorkspace = async ({ sql }: Connection, lease: Lease): Promise<void> => {
  await sql`
    insert into artifact_workspaces (tenant_id, operation_id) values (${lease.tenantId}, ${lease.operationId}::uuid)
    on conflict (tenant_id, operation_id) do nothing`
}

export interface PublishPosition {
  /** Of the chunks, which are all items but the last. */
  unclaimed: number
  inFlight: number
  waiting: number
  /** Whether the publish was claimed before: it waits, or it has its outcome. */
  claimed: boolean
}

/** Where the shard of an artifact stands before its last item. Null: the lease is lost. */
export const readPublishPosition = async (
  { sql }: Connection,
  lease: ClaimedShard,
): Promise<PublishPosition | null> => {
  const chunks = lease.toOrd - 1
  const [row] = await sql<PublishPosition>`
    select greatest(0, ${chunks} - s.cursor) as unclaimed, s.in_flight as "inFlight",
      (select count(*)::int from item_retries r
        where r.tenant_id = s.tenant_id and r.operation_id = s.operation_id and r.shard = s.shard and r.ord < ${chunks})
        as waiting,
      s.cursor > ${chunks} as claimed
    from operation_shards s
    where s.tenant_id = ${lease.tenantId} and s.operation_id = ${lease.operationId}::uuid and s.shard = ${lease.shard}
      and s.state = 'leased' and s.lease_epoch = ${lease.epoch}`
  return row ?? null
}

/** The reference of each chunk in order; null where it has not been written. */
export const readChunkRefs = async ({ sql }: Connection, lease: ClaimedShard): Promise<(string | null)[]> => {
  const rows = await sql<{ ref: string | null }>`
    select case e.state when 'applied' then e.effect_ref end as ref
    from operation_items i left join effects e on e.tenant_id = i.tenant_id and e.effect_key = i.effect_key
    where i.tenant_id = ${lease.tenantId} and i.operation_id = ${lease.operationId}::uuid and i.ord < ${lease.toOrd - 1}
    order by i.ord`
  return rows.map((row) => row.ref)
}

/**
 * Publishes: the outcome of the publish, the artifact's row, and the end of the artifact whose place it takes, in one
 * commit under the fence. Null: the fence did not hold. The caller then reads back whether an earlier try was committed.
 */
export const convergePublish = (
  database: Database,
  lease: ClaimedShard,
  evidence: Evidence,
  artifact: NewArtifact,
): Promise<Converged | null> =>
  convergeFenced(database, lease, evidence, (sql) =>
    Promise.all([lockArtifactKey(sql, lease, artifact), supersede(sql, lease, artifact), insert(sql, lease, artifact)]),
  )

const lockArtifactKey = (sql: Sql, lease: Lease, { type, artifactKey }: NewArtifact): Promise<unknown> => sql`
  select pg_advisory_xact_lock(hashtextextended(${`${lease.tenantId}:${type}:${artifactKey}`}, 0))`

/** Only what this very commit has published counts: not what an earlier try published, and not where the fence did not hold. */
const supersede = (sql: Sql, lease: ClaimedShard, artifact: NewArtifact): Promise<unknown> => sql`
  update artifacts set superseded_at = clock_timestamp(), superseded_by = ${artifact.id}::uuid, supersede_reason = 'newer'
  where tenant_id = ${lease.tenantId} and type = ${artifact.type} and artifact_key = ${artifact.artifactKey}
    and superseded_at is null
    and exists (select from effects e
      where e.tenant_id = ${lease.tenantId} and e.operation_id = ${lease.operationId}::uuid and e.shard = ${lease.shard}
        and e.effect_key = (select i.effect_key from operation_items i where i.tenant_id = ${lease.tenantId}
          and i.operation_id = ${lease.operationId}::uuid and i.ord = ${lease.toOrd - 1})
        and e.state = 'applied' and e.lease_epoch = ${lease.epoch})
    and not exists (select from artifacts a
      where a.tenant_id = ${lease.tenantId} and a.operation_id = ${lease.operationId}::uuid)`

const insert = (sql: Sql, lease: ClaimedShard, artifact: NewArtifact): Promise<unknown> => sql`
  insert into artifacts (tenant_id, id, operation_id, type, artifact_key, name, content_type, object, size_bytes, sha256,
    expires_at)
  select e.tenant_id, ${artifact.id}::uuid, e.operation_id, ${artifact.type}, ${artifact.artifactKey}, ${artifact.name},
    ${artifact.contentType}, ${artifact.object}, ${artifact.sizeBytes}::bigint, ${artifact.sha256},
    clock_timestamp() + ${artifact.keepDays}::int * interval '1 day'
  from operation_items i join effects e on e.tenant_id = i.tenant_id and e.effect_key = i.effect_key
  where i.tenant_id = ${lease.tenantId} and i.operation_id = ${lease.operationId}::uuid and i.ord = ${lease.toOrd - 1}
    and e.operation_id = i.operation_id and e.state = 'applied' and e.lease_epoch = ${lease.epoch}
  on conflict (tenant_id, operation_id) do nothing`
