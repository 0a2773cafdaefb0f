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
  /** What drizzle composes never is. */
  prepared: boolean
  /** Rows that its scans looked at, also those that a filter then threw away, by table; a partition counts for its table. */
  rows: Map<string, number>
  /** Tables that were read from end to end. */
  whole: Set<string>
  /** What the planner takes the plan to cost, in its own units. */
  cost: number
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
  'Total Cost': number
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

const readPlan = (answer: unknown): Omit<StatementReads, 'text' | 'prepared'> => {
  const [{ Plan }] = (typeof answer === 'string' ? JSON.parse(answer) : answer) as [{ Plan: PlanNode }]
  const reads = { rows: new Map<string, number>(), whole: new Set<string>() }
  addReads(Plan, reads)
  return { ...reads, cost: Plan['Total Cost'], plan: JSON.stringify(Plan, null, 1) }
}

/** Not a read, and nothing that EXPLAIN takes. */
const isPlain = (text: string): boolean => /^\s*(lock|set|savepoint|rollback)\b/i.test(text)

const withPrefix = (prefix: string, strings: readonly string[]): TemplateStringsArray => {
  const [first = '', ...rest] = strings
  const prefixed = [prefix + first, ...rest]
  return Object.assign(prefixed, { raw: prefixed }) as unknown as TemplateStringsArray
}

class RolledBack extends Error {}

/**
 * PostgreSQL plans a statement anew for its parameters (`custom`), until a plan for any parameters (`generic`) looks no dearer:
 * a prepared one may get either.
 */
export type PlanKind = 'custom' | 'generic'

const EXPLAIN = 'explain (analyze, timing off, summary off, format json) '
const literal = (value: Parameter): string => (value === null ? 'null' : `'${String(value).replaceAll("'", "''")}'`)

export const readsOf = async (
  database: Database,
  work: (reader: Reader) => Promise<unknown>,
  kind: PlanKind = 'custom',
): Promise<StatementReads[]> => {
  const statements: StatementReads[] = []
  const explainTo = ({ sql, script }: TransactionConnection): Reader => {
    const runOne = async <T extends object>(
      strings: readonly string[],
      parameters: readonly Parameter[],
      prepared: boolean,
    ) => {
      if (!isPlain(strings[0] ?? '')) {
        const text = strings.map((part, index) => (index === 0 ? part : `$${index}${part}`)).join('')
        await script('savepoint explained')
        let explain = withPrefix(EXPLAIN, strings)
        if (kind === 'generic') {
          await script(`prepare explained as ${text}`)
          const values = parameters.length === 0 ? '' : `(${parameters.map(literal).join(', ')})`
          explain = withPrefix(EXPLAIN, [`execute explained${values}`])
        }
        const [row] = await sql<{ 'QUERY PLAN': unknown }>(explain, ...(kind === 'generic' ? [] : parameters))
        statements.push({ text, prepared, ...readPlan(row?.['QUERY PLAN']) })
        await script('rollback to explained')
        if (kind === 'generic') await script('deallocate explained')
      }
      return sql<T>(withPrefix('', strings), ...parameters)
    }
    // what is sent at once, as locks and their work are, must not come between a savepoint and its end
    let last: Promise<unknown> = Promise.resolve()
    const queue = <T extends object>(
      strings: TemplateStringsArray,
      parameters: readonly Parameter[],
      prepared: boolean,
    ) => {
      const mine = last.then(() => runOne<T>(strings, parameters, prepared))
      last = mine.catch(() => {})
      return mine
    }
    const queued: Sql = <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) =>
      queue<T>(strings, parameters, true)
    // composed queries want rows in the order of their columns, and are content with none
    const proxied = drizzle(async (text, parameters, method) => {
      const rows = await queue(withPrefix('', text.split(/\$\d+/)), parameters as Parameter[], false)
      return { rows: method === 'execute' ? rows : [] }
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
      // one that says so itself is planned anew all the same
      if (kind === 'generic') await connection.script('set local plan_cache_mode = force_generic_plan')
      await work(explainTo(connection))
      throw new RolledBack()
    })
    .catch((error: unknown) => {
      if (!(error instanceof RolledBack)) throw error
    })
  return statements
}
