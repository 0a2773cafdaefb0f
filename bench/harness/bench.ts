import type { Closers } from './closers.ts'
import type { DatabaseServer } from './database-server.ts'
import type { Result } from './result.ts'

/** A bar of a chart. Opledger, a peer that does the same job, or a limit that does less. */
export interface Bar {
  label: string
  value: number
  kind: 'opledger' | 'peer' | 'limit'
}

export interface Chart {
  title: string
  /** Of the values, such as `requests/s`. */
  unit: string
  bars: readonly Bar[]
}

export interface Outcome {
  results: Result[]
  /** Null: its lines say it all. */
  chart: Chart | null
}

export interface BenchContext {
  /** A look at whether everything runs: fewer and shorter rounds, whose figures say nothing. */
  quick: boolean
  server: DatabaseServer
  /** An empty directory of this bench. */
  directory: string
  /** What ends with the bench, last opened first. */
  closers: Closers
  /** A line for whoever waits. */
  say(line: string): void
}

export interface Bench {
  id: string
  /** One sentence: the load. */
  load: string
  run(context: BenchContext): Promise<Outcome>
}
