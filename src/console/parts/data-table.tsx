import type { ComponentChildren, JSX } from 'preact'

export interface Column<Row> {
  name: string
  cell: (row: Row) => ComponentChildren
  isNumber?: boolean
  /** Names the row; at most one. */
  isHeader?: boolean
}

interface TableProps<Row> {
  caption: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  keyOf: (row: Row) => string
  /** Said in place of rows. */
  empty?: string
}

/**
 * A table that becomes a list of cards on a phone. The style sheet does that with `display`, which takes the meaning
 * from the elements in some browsers; the roles give it back.
 */
export const DataTable = <Row,>({ caption, columns, rows, keyOf, empty }: TableProps<Row>): JSX.Element => {
  if (rows.length === 0 && empty !== undefined) return <p class="muted">{empty}</p>
  return (
    <table role="table">
      <caption class="quiet">{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map(({ name, isNumber }) => (
            <th key={name} role="columnheader" scope="col" class={isNumber ? 'number' : undefined}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={keyOf(row)} role="row">
            {columns.map(({ name, cell, isNumber, isHeader }) =>
              isHeader ? (
                <th key={name} role="rowheader" scope="row" data-label={name}>
                  {cell(row)}
                </th>
              ) : (
                <td key={name} role="cell" data-label={name} class={isNumber ? 'number' : undefined}>
                  {cell(row)}
                </td>
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  )
}
