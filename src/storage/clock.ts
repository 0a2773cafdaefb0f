import type { Connection } from './database.ts'

/** The database's clock, the only one that facts are told by. */
export const readNow = async ({ sql }: Connection): Promise<string> => {
  const [row] = await sql<{ now: string }>`select clock_timestamp() as now`
  if (row === undefined) throw new Error('the database answered without a row')
  return row.now
}
