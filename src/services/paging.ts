import type { Page } from './views.ts'

/** Reads one row more than asked for: whether there is a next page is known without a count. */
export const readPage = async <Row, Position>(
  limit: number,
  read: (limit: number) => Promise<Row[]>,
  positionOf: (row: Row) => Position,
): Promise<Page<Row, Position>> => {
  const rows = await read(limit + 1)
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, next: rows.length > limit && last !== undefined ? positionOf(last) : null }
}

/** Rows per statement of a stream: bounded memory, and few enough statements for a million rows. */
const STREAM_ROWS = 1_000

/** All rows, page by page; the next one is read when the consumer asks for it, so a slow client holds no connection. */
export async function* streamPages<Row, Position>(
  read: (position: Position | null, limit: number) => Promise<Row[]>,
  positionOf: (row: Row) => Position,
): AsyncGenerator<Row[]> {
  let position: Position | null = null
  for (;;) {
    const rows: Row[] = await read(position, STREAM_ROWS)
    if (rows.length > 0) yield rows
    const last = rows.at(-1)
    if (last === undefined || rows.length < STREAM_ROWS) return
    position = positionOf(last)
  }
}
