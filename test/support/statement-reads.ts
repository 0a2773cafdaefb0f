/**
 * What statements read. Each one that `work` sends is run twice in one transaction that is rolled back in the end: first under
 * EXPLAIN (ANALYZE), which a savepoint takes back, then for its answer. So `work` goes its whole way, as it does in production.
 */
import { drizzle } from 'drizzle-orm/pg-proxy'
import type { Connection, Parameter, Sql, TransactionConnection } from '../../src/storage/connection.ts'
import type { Database } from '../../src/storage/database.ts'

export interface StatementReads {
  /** With $1, $2 … for its parameters. */
  text: string
  /** Rows that its scans looked at, also those that a filter then threw away, by table; a partition counts for its table. */
  rows: Map<string, number>
  /** Tables that were read from end to end. */
  whole: Set<string>
  /** The plan, for whoever has to see why. */
  plan: string
}

export interface Reader {
  connection: Connection
  /** Its transactions and locks are part of the one transaction. */
  database: Database
}

interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  Plans?: PlanNode[]
}

const tableOf = (relation: string): string => relation.replace(/_\d{6}$|_default$/, '')

const addReads = (node: PlanNode, reads: Pick<StatementReads, 'rows' | 'whole'>): void => {
  const relation = node['Relation Name']
  if (relation !== undefined && node['Node Type'].endsWith('Scan')) {
    const thrownAway = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
    const table = tableOf(relation)
    const looked = Math.round((node['Actual Rows'] + thrownAway) * node['Actual Loops'])
    reads.rows.set(table, (reads.rows.get(table) ?? 0) + looked)
    // a month of the ledger without rows is read from end to end, and costs nothing
    if (node['Node Type'] === 'Seq Scan' && looked > 0) reads.whole.add(table)
  }
  for (const child of node.Plans ?? []) addReads(child, reads)
}

const readPlan = (answer: unknown): Omit<StatementReads, 'text'> => {
  const [{ Plan }] = (typeof answer === 'string' ? JSON.parse(answer) : answer) as [{ Plan: PlanNode }]
  const reads = { rows: new Map<string, number>(), whole: new Set<string>() }
  addReads(Plan, reads)
  return { ...reads, plan: JSON.stringify(Plan, null, 1) }
}

/** Not a read, and nothing that EXPLAIN takes. */
const isPlain = (text: string): boolean => /^\s*(lock|set|savepoint|rollback)\b/i.test(text)

const withPrefix = (prefix: string, strings: readonly string[]): TemplateStringsArray => {
  const [first = '', ...rest] = strings
  const prefixed = [prefix + first, ...rest]
  return Object.assign(prefixed, { raw: prefixed }) as unknown as TemplateStringsArray
}

class RolledBack extends Error {}

export const readsOf = async (
  database: Database,
  work: (reader: Reader) => Promise<unknown>,
): Promise<StatementReads[]> => {
  const statements: StatementReads[] = []
  const explainTo = ({ sql, script }: TransactionConnection): Reader => {
    const runOne = async <T extends object>(strings: readonly string[], parameters: readonly Parameter[]) => {
      if (!isPlain(strings[0] ?? '')) {
        await script('savepoint explained')
        const explain = withPrefix('explain (analyze, costs off, timing off, summary off, format json) ', strings)
        const [row] = await sql<{ 'QUERY PLAN': unknown }>(explain, ...parameters)
        const text = strings.map((part, index) => (index === 0 ? part : `$${index}${part}`)).join('')
        statements.push({ text, ...readPlan(row?.['QUERY PLAN']) })
        await script('rollback to explained')
      }
      return sql<T>(withPrefix('', strings), ...parameters)
    }
    // what is sent at once, as locks and their work are, must not come between a savepoint and its end
    let last: Promise<unknown> = Promise.resolve()
    const queued: Sql = <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) => {
      const mine = last.then(() => runOne<T>(strings, parameters))
      last = mine.catch(() => {})
      return mine
    }
    const proxied = drizzle(async (text, parameters) => {
      await queued(withPrefix('', text.split(/\$\d+/)), ...(parameters as Parameter[]))
      return { rows: [] }
    })
    const connection: Connection = { sql: queued, script, db: proxied as unknown as Connection['db'] }
    const reading: Database = {
      query: (read) => read(connection),
      transaction: (change) => change(connection),
      async lockThenWork(steps) {
        const { lock, work: change, also } = steps(queued)
        await lock
        const answer = await change
        await also
        return answer
      },
      queuedMs: () => 0,
      close: async () => {},
    }
    return { connection, database: reading }
  }
  await database
    .transaction(async (connection) => {
      await work(explainTo(connection))
      throw new RolledBack()
    })
    .catch((error: unknown) => {
      if (!(error instanceof RolledBack)) throw error
    })
  return statements
}
