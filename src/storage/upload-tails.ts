/** Removing what uploads left behind; see the header of uploads.ts. */
import type { Connection } from './connection.ts'
import { UPLOAD_LEASE_SECONDS, type Upload, type UploadKey } from './uploads.ts'

/** Rows of one deletion: some tens of milliseconds. */
export const TAIL_SLICE_ROWS = 10_000

/** The last row of the tail of an upload; null: there is none. */
export const readTailEnd = async ({ sql }: Connection, upload: Upload): Promise<number | null> => {
  const [row] = await sql<{ ord: number | null }>`
    select max(ord) as ord from operation_items
    where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and ord >= ${upload.fromOrd}`
  return row?.ord ?? null
}

/** Deletes the rows of the tail from `from` to `to`, both included. False: the upload is not in `state` any more. */
export const deleteTailSlice = async (
  { sql }: Connection,
  upload: Upload,
  state: 'live' | 'abandoned',
  from: number,
  to: number,
): Promise<boolean> => {
  const rows = await sql`
    with u as (
      update operation_uploads set last_seen_at = clock_timestamp()
      where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and id = ${upload.id}::uuid
        and state = ${state}
      returning 1),
    gone as (
      delete from operation_items
      where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid
        and ord >= greatest(${from}::int, ${upload.fromOrd}::int) and ord <= ${to} and exists (select from u))
    select 1 from u`
  return rows.length > 0
}

/**
 * Takes an upload that nobody continued, over all tenants: given up, or expired. It is `abandoned` from then on and seen
 * now, so that other janitors leave it alone for a while.
 */
export const takeStaleUpload = async ({ sql }: Connection): Promise<Upload | null> => {
  const [row] = await sql<Upload>`
    update operation_uploads set state = 'abandoned', last_seen_at = clock_timestamp()
    where (tenant_id, operation_id, id) = (
        select tenant_id, operation_id, id from operation_uploads
        where state <> 'done' and last_seen_at < now() - ${2 * UPLOAD_LEASE_SECONDS} * interval '1 second'
        limit 1 for no key update skip locked)
    returning tenant_id as "tenantId", operation_id as "operationId", id, from_ord as "fromOrd"`
  return row ?? null
}

/** Forgets an abandoned upload whose tail is gone. */
export const forgetUpload = async ({ sql }: Connection, upload: UploadKey): Promise<void> => {
  await sql`
    delete from operation_uploads
    where tenant_id = ${upload.tenantId} and operation_id = ${upload.operationId}::uuid and id = ${upload.id}::uuid
      and state = 'abandoned'`
}
