/**
 * The account at the end: what the ledger says of every item, held against what the world says. Grants against the
 * provider's own log, places against the rows of the target table. Whatever differs is a discrepancy.
 */
import postgres from 'postgres'
import type { Item, Operation } from './client.ts'
import type { Place } from './places.ts'
import type { ProviderEntry } from './provider.ts'

export interface Accounted {
  label: string
  operation: Operation
  items: readonly Item[]
}

const STATES = ['applied', 'skipped', 'failed', 'uncertain', 'unprocessed'] as const

const NEVER_SEEN: ProviderEntry = { requests: 0, pending: 0, applied: 0, grantedBefore: false }

const countBy = <Row>(rows: readonly Row[], name: (row: Row) => string): Map<string, number> => {
  const counts = new Map<string, number>()
  for (const row of rows) counts.set(name(row), (counts.get(name(row)) ?? 0) + 1)
  return counts
}

/** The resource's own counters: against the items, against each other, and against the number of items submitted. */
export const checkCounts = ({ label, operation, items }: Accounted, submitted: number): string[] => {
  const { counts, failures } = operation
  const found: string[] = []
  const expect = (what: string, actual: number, expected: number): void => {
    if (actual !== expected) found.push(`${label}: ${what} is ${actual}, not ${expected}`)
  }
  expect('total', counts.total, submitted)
  expect(
    'the sum of the counts',
    STATES.reduce((sum, state) => sum + counts[state], 0),
    counts.total,
  )
  expect('the number of items listed', items.length, counts.total)
  const listed = countBy(items, (item) => item.state)
  for (const state of STATES) expect(`counts.${state}`, counts[state], listed.get(state) ?? 0)
  const classes = countBy(
    items.filter((item) => item.state === 'failed'),
    (item) => item.failure_class ?? 'none',
  )
  for (const name of new Set([...classes.keys(), ...Object.keys(failures)])) {
    expect(`failures.${name}`, failures[name] ?? 0, classes.get(name) ?? 0)
  }
  expect('counts.uncertain', counts.uncertain, 0)
  return found
}

/**
 * Each effect key, over all operations that had it: applied once by the ledger means applied exactly once at the
 * provider; otherwise (failed, unprocessed) not at all; skipped only what the provider holds.
 */
export const checkGrants = (
  accounted: readonly Accounted[],
  provider: ReadonlyMap<string, ProviderEntry>,
): { keys: number; discrepancies: string[] } => {
  const claims = new Map<string, { applied: number; skipped: number; by: string[] }>()
  for (const { label, items } of accounted) {
    for (const item of items) {
      const claim = claims.get(item.effect_key) ?? { applied: 0, skipped: 0, by: [] }
      claims.set(item.effect_key, claim)
      if (item.state === 'applied') claim.applied += 1
      if (item.state === 'skipped') claim.skipped += 1
      claim.by.push(`${label}: ${item.state}`)
    }
  }
  const discrepancies: string[] = []
  for (const [key, { applied, skipped, by }] of claims) {
    const entry = provider.get(key) ?? NEVER_SEEN
    const says = `${key}: the ledger says (${by.join(', ')}), the provider applied it ${entry.applied} times`
    if (entry.applied > 1 || entry.applied !== applied) discrepancies.push(says)
    else if (skipped > 0 && entry.applied === 0 && !entry.grantedBefore)
      discrepancies.push(`${says}, and held no grant`)
  }
  for (const [key, { requests }] of provider) {
    if (!claims.has(key)) discrepancies.push(`${key}: the provider saw it ${requests} times, and no operation has it`)
  }
  return { keys: claims.size, discrepancies }
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
