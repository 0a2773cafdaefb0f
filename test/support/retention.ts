/** Time for retention: it passes in the database, by hand. */
import { texts } from '../../src/storage/array-literal.ts'
import type { Database } from '../../src/storage/database.ts'
import { purgeRows, readMarked } from '../../src/storage/purge-rows.ts'

const MARKED_MAX = 1_000

/** What happened to these operations happened so many days earlier. */
export const age = (database: Database, operationIds: readonly string[], days: number): Promise<void> =>
  database.transaction(async ({ sql }) => {
    const ids = texts(operationIds)
    await sql`
      update operations set created_at = created_at - ${days}::int * interval '1 day',
        started_at = started_at - ${days}::int * interval '1 day', completed_at = completed_at - ${days}::int * interval '1 day'
      where id = any(${ids}::uuid[])`
    await sql`
      update operation_shards set last_progress_at = last_progress_at - ${days}::int * interval '1 day'
      where operation_id = any(${ids}::uuid[])`
    await sql`
      update reconciliation_cases set closed_at = closed_at - ${days}::int * interval '1 day'
      where operation_id = any(${ids}::uuid[])`
    await sql`
      update dead_letters set closed_at = closed_at - ${days}::int * interval '1 day'
      where operation_id = any(${ids}::uuid[])`
  })

/** Deletes all that is marked; answers with how many batches that took. */
export const purgeMarked = async (database: Database, rowsMax?: number): Promise<number> => {
  let batches = 0
  for (;;) {
    const marked = await database.query((connection) => readMarked(connection, MARKED_MAX))
    if (marked.length === 0) return batches
    for (const operation of marked) if (await purgeRows(database, operation, rowsMax)) batches++
  }
}
