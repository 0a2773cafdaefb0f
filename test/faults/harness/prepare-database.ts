import postgres from 'postgres'
import { migrate } from '../../../src/storage/migrate.ts'

/** What `openStack` expects of a database that is not one of the suite's own: the schema, and the table of `fault-row`. */
export const prepareDatabase = async (url: string): Promise<void> => {
  await migrate({ url })
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  await sql`create table fault_rows (item_key text not null)`
  await sql.end()
}
