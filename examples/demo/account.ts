/**
 * The account at the end. That counts, ledger and effects agree is checked by the invariants that every fault test is held
 * against (test/invariants): grants against the provider's own log, places against the rows of the target table. What is the
 * demo's own stands here: that the rows are the places that were sent, and the table that tells of it.
 */
import postgres from 'postgres'
import { effectLog, type Judge } from '../../test/invariants/effect-log.ts'
import type { History } from '../../test/invariants/history.ts'
import { checkInvariants } from '../../test/invariants/invariants.ts'
import { checkLinearizable } from '../../test/invariants/linearizable.ts'
import { describeViolation } from '../../test/invariants/violation.ts'
import type { Item, Operation } from './client.ts'
import type { Place } from './places.ts'
import type { Provider } from './provider.ts'

export interface Accounted {
  label: string
  operation: Operation
  items: readonly Item[]
}

/** As in types.yaml: a request that waits for a connection starts within it. */
const CALL_TIMEOUT_MS = 2_500

/** I1 to I8: nothing is open in the end, and every effect of the grants and of the import is what the ledger calls it. */
export const checkRun = async (
  { history, provider }: { history: History; provider: Provider },
  imported: Accounted,
  databaseUrl: string,
): Promise<string[]> => {
  const sql = postgres(databaseUrl, { max: 2, onnotice: () => {} })
  try {
    const keyOf = new Map(imported.items.map((item) => [item.key, item.effect_key]))
    const judges: Judge[] = [
      {
        types: ['demo-grant'],
        read: () => Object.fromEntries(provider.entries()),
        slackMs: () => CALL_TIMEOUT_MS + provider.lagMs(),
      },
      {
        types: [imported.operation.type],
        // one row a place: its key is the table's
        read: async () => {
          const rows = await sql<{ id: string }[]>`select id from example_places`
          return effectLog(rows.map(({ id }) => [keyOf.get(id) ?? id, 1]))
        },
      },
    ]
    const found = await checkInvariants({ history, sql, judges, phase: 'end' })
    return [...found, ...checkLinearizable(history.calls())].map(describeViolation)
  } finally {
    await sql.end()
  }
}

/** Each place: there, whole, and written by the operation whose item says so; and no other row. */
export const checkPlaces = async (
  accounted: readonly Accounted[],
  places: ReadonlyMap<string, Place>,
  databaseUrl: string,
): Promise<{ rows: number; discrepancies: string[] }> => {
  const appliedBy = new Map<string, string>()
  for (const { operation, items } of accounted) {
    for (const item of items) if (item.state === 'applied') appliedBy.set(item.key, operation.id)
  }
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  try {
    const rows = await sql<(Place & { id: string; operation_id: string })[]>`
      select id, name, country, lat, lng, 'op_' || replace(operation_id::text, '-', '') as operation_id
      from example_places`
    const discrepancies: string[] = []
    const seen = new Set<string>()
    for (const row of rows) {
      seen.add(row.id)
      const place = places.get(row.id)
      const isSame =
        place?.name === row.name && place.country === row.country && place.lat === row.lat && place.lng === row.lng
      if (!isSame) discrepancies.push(`${row.id}: the row differs from the place that was sent`)
      if (appliedBy.get(row.id) !== row.operation_id) {
        discrepancies.push(`${row.id}: the row was written by ${row.operation_id}, whose ledger does not say applied`)
      }
    }
    for (const key of appliedBy.keys()) {
      if (!seen.has(key)) discrepancies.push(`${key}: applied by the ledger, and there is no row`)
    }
    return { rows: rows.length, discrepancies }
  } finally {
    await sql.end()
  }
}

const CLASSES = ['transient', 'validation_rejected', 'conflict', 'policy_denied', 'bug_suspected']
const HEADINGS = ['operation', 'applied', 'skipped', 'failed', 'uncertain', 'unprocessed', 'total', 'status']

const cellsOf = ({ label, operation }: Accounted): string[] => {
  const { counts, status } = operation
  const figures = [counts.applied, counts.skipped, counts.failed, counts.uncertain, counts.unprocessed, counts.total]
  return [label, ...figures.map((figure) => figure.toLocaleString('en')), status]
}

/** One line an operation, and below it what failed by class. */
export const accountTable = (accounted: readonly Accounted[]): string => {
  const rows = accounted.map((each) => ({ cells: cellsOf(each), failures: each.operation.failures }))
  const widths = HEADINGS.map((heading, column) =>
    Math.max(heading.length, ...rows.map(({ cells }) => cells[column]?.length ?? 0)),
  )
  const line = (cells: readonly string[]): string =>
    `  ${cells
      .map((cell, column) => {
        const isText = column === 0 || column === cells.length - 1
        return isText ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)
      })
      .join('  ')
      .trimEnd()}\n`
  const failed = (failures: Record<string, number>): string => {
    const classes = [...CLASSES, ...Object.keys(failures).filter((name) => !CLASSES.includes(name))]
    const parts = classes.filter((name) => failures[name]).map((name) => `${name} ${failures[name]}`)
    return parts.length === 0 ? '' : `    failed by class: ${parts.join(', ')}\n`
  }
  return [
    line(HEADINGS),
    line(widths.map((width) => '-'.repeat(width))),
    ...rows.map(({ cells, failures }) => line(cells) + failed(failures)),
  ].join('')
}
