/**
 * The protocol of an upload: any number of rows, all or nothing, in short transactions.
 *
 *   begin ──▶ live ──chunk──▶ live ──chunk──▶ … ──finish──▶ done
 *               │ error, or unseen for UPLOAD_LEASE_SECONDS
 *               ▼
 *           abandoned ──▶ (replaced by the next upload, or removed by the janitor)
 *
 * Rows of a draft at or above its `items_total` do not exist: no reader counts them, no shard covers them. They are the tail.
 * A chunk appends to the tail; `finish` moves `items_total` over it. So all of an upload appears in one commit.
 *
 * The invariant: only the *open* upload of a draft (live or abandoned; a unique index allows one) touches the tail, and each
 * statement that does so first locks that upload's row and finds its own id and state in it. Whoever takes over removes
 * that row under the same lock. Therefore nothing of a predecessor is under way any more, and what it tries later finds no
 * row: no matter how long it was paused, it adds nothing and deletes nothing.
 *
 * A crash, line by line. After `begin`: an open row without rows; it expires. After a chunk: a tail that nobody sees; the next
 * upload deletes it, in slices, before it adds its own. Within a chunk: the statement did not happen. Before the commit of
 * `finish`: as after a chunk. After it: everything is there, and only the answer is lost; a repeat with the same
 * key reads it from the row, one without a key is refused for duplicate item keys. A commit whose reply was lost is an error
 * to us, and gives the upload up; if it was that of `finish`, the row is done and giving it up changes nothing.
 *
 * `finish` and `start` both lock the operation first, so one of them sees the other: a draft that was started or cancelled
 * takes no more items, and a start covers all that was finished before it.
 * Lock order: operation → upload → items. Times are the database's.
 */
import type { Audited } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import type { ChunkTexts } from './item-chunk.ts'

/** Unseen for so long, an upload may be replaced. It is renewed every third of it. */
export const UPLOAD_LEASE_SECONDS = 30

export interface UploadKey {
  tenantId: number
  operationId: string
  id: string
}

export interface Upload extends UploadKey {
  /** items_total of the draft: where the upload's own rows begin. */
  fromOrd: number
}

export interface NewUpload extends UploadKey {
  idempotencyKey: string | null
  /** Null: not asked. */
  ifMatchVersion: number | null
  requestedBy: string
}

export type Begun =
  | { kind: 'begun'; fromOrd: number; type: string; typeVersion: number; rootId: string }
  /** The key was used before. */
  | { kind: 'done'; type: string; added: number; total: number; requestHash: string }
  | { kind: 'no-operation' }
  | { kind: 'not-draft'; status: string }
  | { kind: 'changed'; version: number }
  | { kind: 'in-progress' }

/** Opens an upload, in the place of one that was given up or has expired. */
export const beginUpload = (database: Database, upload: NewUpload): Promise<Begun> =>
  database.transaction(async ({ sql }) => {
    const { tenantId, operationId } = upload
    const [draft] = await sql<{
      status: string
      version: number
      total: number
      type: string
      typeVersion: number
      rootId: string
    }>`
      select status, version::float8 as version, items_total::int as total, type, type_version as "typeVersion",
        root_id as "rootId"
      from operations where tenant_id = ${tenantId} and id = ${operationId}::uuid for no key update`
    if (!draft) return { kind: 'no-operation' }
    const [done] = await sql<{ added: number; total: number; requestHash: string }>`
      select added, from_ord + added as total, request_hash as "requestHash" from operation_uploads
      where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and state = 'done'
        and upload_key = ${upload.idempotencyKey}`
    if (done) return { kind: 'done', type: draft.type, ...done }
    if (draft.status !== 'draft') return { kind: 'not-draft', status: draft.status }
    if (upload.ifMatchVersion !== null && upload.ifMatchVersion !== draft.version) {
      return { kind: 'changed', version: draft.version }
    }
    const [open] = await sql<{ id: string; live: boolean }>`
      select id, state = 'live' and last_seen_at > clock_timestamp() - ${UPLOAD_LEASE_SECONDS} * interval '1 second' as live
      from operation_uploads
      where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and state <> 'done' for no key update`
    if (open?.live) return { kind: 'in-progress' }
    if (open) {
      await sql`
        delete from operation_uploads
        where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and id = ${open.id}::uuid`
    }
    await sql`
      insert into operation_uploads (tenant_id, operation_id, id, from_ord, upload_key, requested_by)
      values (${tenantId}, ${operationId}::uuid, ${upload.id}::uuid, ${draft.total}, ${upload.idempotencyKey},
        ${upload.requestedBy})`
    const { type, typeVersion, rootId } = draft
    return { kind: 'begun', fromOrd: draft.total, type, typeVersion, rootId }
  })

/**
 * Appends rows to the tail; `added` is how many the upload has appended before. Keys that the operation has already are left
 * out: fewer stored than sent means that the upload has failed. Null: it cannot go on.
 */
export const storeChunk = async (
  { sql }: Connection,
  upload: Upload,
  added: number,
  chunk: ChunkTexts,
): Promise<{ stored: number } | null> => {
  const [row] = await sql<{ stored: number }>`
    with u as (
      update operation_uploads set added = added + ${chunk.count}, last_seen_at = clock_timestamp()
      where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and id = ${upload.id}::uuid
        and state = 'live' and added = ${added}
        -- spares a cancelled draft the rest of its upload; finish is what decides
        and exists (select from operations o where o.tenant_id = ${upload.tenantId}
          and o.id = ${upload.operationId}::uuid and o.status = 'draft')
      returning tenant_id, operation_id, from_ord),
    stored as (
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select u.tenant_id, u.operation_id, u.from_ord + ${added} + i.n - 1, i.item_key, i.effect_key, i.input::jsonb,
        i.input_hash
      from u, unnest(${chunk.keys}::text[], ${chunk.effectKeys}::text[], ${chunk.inputs}::text[], ${chunk.inputHashes}::text[])
        with ordinality as i (item_key, effect_key, input, input_hash, n)
      on conflict (tenant_id, operation_id, item_key) do nothing
      returning 1)
    select (select count(*) from stored)::int as stored from u`
  return row ?? null
}

/** Rows of a chunk whose key another row had before: their place in the chunk, from 0 on, and the ord of that other row. */
export const readTakenKeys = async (
  { sql }: Connection,
  upload: Upload,
  added: number,
  chunk: ChunkTexts,
  limit: number,
): Promise<{ index: number; key: string; takenBy: number }[]> =>
  sql<{ index: number; key: string; takenBy: number }>`
    select (i.n - 1)::int as index, i.item_key as key, o.ord as "takenBy"
    from unnest(${chunk.keys}::text[]) with ordinality as i (item_key, n) join operation_items o
      on o.tenant_id = ${upload.tenantId} and o.operation_id = ${upload.operationId}::uuid and o.item_key = i.item_key
    where o.ord <> ${upload.fromOrd + added} + i.n - 1
    order by i.n limit ${limit}`

/** Says that the upload goes on. False: it is not the live one any more. */
export const renewUpload = async ({ sql }: Connection, upload: UploadKey): Promise<boolean> => {
  const rows = await sql`
    update operation_uploads set last_seen_at = clock_timestamp()
    where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and id = ${upload.id}::uuid
      and state = 'live'
    returning 1`
  return rows.length > 0
}

/** Gives a live upload up, so that the next one need not wait for it to expire. Its tail stays until then. */
export const abandonUpload = async ({ sql }: Connection, upload: UploadKey): Promise<void> => {
  await sql`
    update operation_uploads set state = 'abandoned'
    where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and id = ${upload.id}::uuid
      and state = 'live'`
}

/** Makes the `added` rows of the upload part of the draft. Null: the draft is none any more, or the upload is not the live one. */
export const finishUpload = (
  database: Database,
  upload: Upload & Audited & { added: number; requestHash: string; actor: string },
): Promise<{ total: number } | null> =>
  database.lockThenWork((sql) => ({
    lock: Promise.all([
      sql`
        select 1 from operations where tenant_id = ${upload.tenantId} and id = ${upload.operationId}::uuid
        for no key update`,
      sql`
        select 1 from operation_uploads
        where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and id = ${upload.id}::uuid
        for no key update`,
    ]),
    work: sql<{ total: number }>`
      with u as (
        update operation_uploads u set
          state = 'done', request_hash = ${upload.requestHash}, completed_at = clock_timestamp()
        from operations o
        where u.tenant_id = ${upload.tenantId} and u.operation_id = ${upload.operationId}::uuid and u.id = ${upload.id}::uuid
          and u.state = 'live' and u.added = ${upload.added} and o.tenant_id = u.tenant_id and o.id = u.operation_id
          and o.status = 'draft' and o.items_total = u.from_ord
        returning u.tenant_id, u.operation_id, u.from_ord + u.added as total),
      o as (
        update operations o set items_total = u.total, version = o.version + 1
        from u where o.tenant_id = u.tenant_id and o.id = u.operation_id
        returning o.tenant_id, o.id, o.version, o.status, u.total),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
        select tenant_id, id, version, 'items_added', status, ${upload.actor} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(upload.audit)}::text::jsonb) a)
      select total from o`.then(([row]) => row ?? null),
  }))
