/**
 * npm run bench [-- --only B1,B3] [--quick] [--profile DIR]
 *
 * Builds what is measured, runs the benches one after another, and writes `results.json`, the charts and the README's table. With
 * `--quick` it only looks whether everything runs: it prints its figures, which say nothing, and writes nothing. With `--only`
 * the lines of the other benches stay as they are. With `--profile` api and workers write CPU profiles there, which slows them down,
 * so no figure is kept either. Exit code 1: a bench failed; a goal that is not met is a result, not a failure.
 */
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { submit } from './benches/b01-submit.ts'
import { poll } from './benches/b02-poll.ts'
import { transactional } from './benches/b03-transactional.ts'
import { external } from './benches/b04-external.ts'
import { cancel } from './benches/b05-cancel.ts'
import { latency } from './benches/b06-latency.ts'
import { largeTables } from './benches/b07-large-tables.ts'
import { memory } from './benches/b08-memory.ts'
import { secondWorker } from './benches/b09-second-worker.ts'
import { firstStart } from './benches/b10-start.ts'
import type { Bench, Chart } from './harness/bench.ts'
import { drawChart } from './harness/chart.ts'
import { type Closers, openClosers } from './harness/closers.ts'
import { type DatabaseServer, openDatabaseServer } from './harness/database-server.ts'
import {
  chartFile,
  describeMachine,
  fillIn,
  mergeResults,
  renderCharts,
  renderFleet,
  renderTable,
} from './harness/report.ts'
import { type Result, today } from './harness/result.ts'
import { profileInto } from './harness/service.ts'

const BENCHES: readonly Bench[] = [
  submit,
  poll,
  transactional,
  external,
  cancel,
  latency,
  largeTables,
  memory,
  secondWorker,
  firstStart,
]

const HERE = fileURLToPath(new URL('.', import.meta.url))
const ROOT = path.join(HERE, '..')
const RESULTS = path.join(HERE, 'results.json')
const CHARTS = path.join(HERE, 'charts')
const README = path.join(ROOT, 'README.md')
/** What each size of fleet needs. */
const FLEET = path.join(ROOT, 'deploy', 'database.md')
const BUSY = 0.5

const chosen = (only: string | undefined): readonly Bench[] => {
  if (only === undefined) return BENCHES
  const ids = only.split(',').map((id) => id.trim().toUpperCase())
  const unknown = ids.filter((id) => !BENCHES.some((bench) => bench.id === id))
  if (unknown.length > 0) throw new Error(`--only: there is no ${unknown.join(', ')}; there are B1 to B10`)
  return BENCHES.filter(({ id }) => ids.includes(id))
}

const build = (): void => {
  if (!existsSync(path.join(HERE, 'node_modules'))) {
    throw new Error('the peers are not installed: run bash bench/set-up.sh')
  }
  const { status } = spawnSync('npm', ['run', 'build'], { cwd: ROOT, stdio: 'inherit' })
  if (status !== 0) throw new Error('the build failed')
}

const machine = (server: DatabaseServer): string =>
  describeMachine({
    date: today(),
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    cores: os.availableParallelism(),
    memoryGb: Math.round(os.totalmem() / 1024 ** 3),
    node: process.versions.node,
    database: server.description,
  })

const warnOfLoad = (): void => {
  const load = os.loadavg()[0] ?? 0
  if (load > BUSY) console.log(`others use this machine (load ${load.toFixed(1)}): the spread will tell`)
}

interface Measured {
  results: Result[]
  charts: Map<string, Chart>
  failed: string[]
}

interface RunOptions {
  server: DatabaseServer
  directory: string
  quick: boolean
  /** Once it says so, no further bench is begun. */
  stopped(): boolean
  /** Told what the bench that runs has opened, for whoever has to end it early. */
  onOpen(closers: Closers): void
}

/** A bench that fails says so and leaves its old lines; the others go on. */
const runAll = async (
  benches: readonly Bench[],
  { server, directory, quick, stopped, onOpen }: RunOptions,
): Promise<Measured> => {
  const measured: Measured = { results: [], charts: new Map(), failed: [] }
  for (const bench of benches) {
    if (stopped()) break
    console.log(`\n${bench.id}: ${bench.load}`)
    const own = path.join(directory, bench.id.toLowerCase())
    mkdirSync(own)
    chmodSync(own, 0o755)
    const closers = openClosers()
    onOpen(closers)
    const say = (line: string): void => console.log(`  ${line}`)
    try {
      const { results, chart } = await bench.run({ quick, server, directory: own, closers, say })
      measured.results.push(...results)
      if (chart) measured.charts.set(bench.id, chart)
      console.log(renderTable(results))
    } catch (error) {
      measured.failed.push(bench.id)
      console.error(`${bench.id} failed:`, error)
    } finally {
      await closers.closeAll().catch((error: unknown) => console.error(`${bench.id} did not end cleanly:`, error))
    }
  }
  return measured
}

const write = ({ results, charts }: Measured, described: string): void => {
  const earlier: Result[] = existsSync(RESULTS) ? JSON.parse(readFileSync(RESULTS, 'utf8')) : []
  const all = mergeResults(earlier, results)
  writeFileSync(RESULTS, `${JSON.stringify(all, null, 2)}\n`)
  mkdirSync(CHARTS, { recursive: true })
  for (const [id, chart] of charts) writeFileSync(path.join(CHARTS, chartFile(id)), drawChart(chart))
  const drawn = BENCHES.map(({ id }) => id).filter((id) => existsSync(path.join(CHARTS, chartFile(id))))
  const text = `${described}\n\n${renderTable(all)}\n\n${renderCharts(drawn)}`
  const readme = fillIn(readFileSync(README, 'utf8'), text)
  if (readme === null) console.log('\nthe README has no place called bench, so it stays as it is')
  else writeFileSync(README, readme)
  const fleet = fillIn(readFileSync(FLEET, 'utf8'), `${described}\n\n${renderFleet(all)}`, 'fleet')
  if (fleet === null) console.log('\ndeploy/database.md has no place called fleet, so it stays as it is')
  else writeFileSync(FLEET, fleet)
  format([README, FLEET, RESULTS])
}

/** As everything here is formatted: a run leaves nothing that a check would refuse. */
const format = (files: readonly string[]): void => {
  const { status } = spawnSync('npx', ['biome', 'format', '--write', ...files], { cwd: ROOT, stdio: 'ignore' })
  if (status !== 0) console.log('\nwhat was written could not be formatted: npx biome format --write .')
}

const main = async (): Promise<void> => {
  const { values } = parseArgs({
    options: { only: { type: 'string' }, quick: { type: 'boolean', default: false }, profile: { type: 'string' } },
  })
  if (values.profile !== undefined) profileInto(path.resolve(values.profile))
  const benches = chosen(values.only)
  build()
  warnOfLoad()
  mkdirSync(path.join(HERE, '.data'), { recursive: true })
  const directory = mkdtempSync(path.join(HERE, '.data', 'run-'))
  chmodSync(directory, 0o755) // as root, PostgreSQL runs under another uid and has to get through
  const dataDir = path.join(directory, 'database')
  mkdirSync(dataDir)
  chmodSync(dataDir, 0o755)
  const server = await openDatabaseServer(dataDir)
  let opened: Closers | null = null
  let closing: Promise<void> | null = null
  const closeAll = async (): Promise<void> => {
    await opened?.closeAll().catch(() => {}) // told before, where a bench has ended
    await server.close()
    rmSync(directory, { recursive: true, force: true })
  }
  const close = (): Promise<void> => {
    closing ??= closeAll()
    return closing
  }
  // most of what we started sees that we are gone; databases, PostgreSQL and Redis would stay
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => void close().finally(() => process.exit(1)))
  try {
    const described = machine(server)
    console.log(described)
    const measured = await runAll(benches, {
      server,
      directory,
      quick: values.quick,
      stopped: () => closing !== null,
      onOpen: (closers) => {
        opened = closers
      },
    })
    if (!values.quick && values.profile === undefined) write(measured, described)
    console.log(`\n${renderTable(measured.results)}`)
    if (measured.failed.length > 0) {
      console.error(`\nfailed: ${measured.failed.join(', ')}`)
      process.exitCode = 1
    }
  } finally {
    await close()
  }
}

await main()
