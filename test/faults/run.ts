/**
 * Runs the fault suite:
 *
 *   npm run test:faults                        the short form
 *   npm run test:faults -- --long              everything, and often
 *   npm run test:faults -- --only F5,F17       some of it
 *   npm run test:faults -- --seed 7            the same decisions again (not the same timing)
 *   npm run test:faults -- --record            writes the run into record.json and the table of README.md
 *
 * The suite attacks the build, so it builds first. Exit code 0: no promise was broken.
 */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { renderBoundaries } from './boundaries.ts'
import type { FaultResult } from './harness/fault.ts'
import { bySources, fillIn, renderRecord, renderTable, type SuiteRun, sumUp } from './record.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const RECORD = fileURLToPath(new URL('record.json', import.meta.url))
const README = fileURLToPath(new URL('README.md', import.meta.url))
const SEEDS = 1_000_000

const run = (command: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env): number =>
  spawnSync(command, args, { cwd: ROOT, env, stdio: 'inherit' }).status ?? 1

const readResults = (file: string): FaultResult[] =>
  fs
    .readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))

const sourceTree = (): string => {
  const { stdout } = spawnSync('git', ['rev-parse', 'HEAD:src'], { cwd: ROOT, encoding: 'utf8' })
  const changed = spawnSync('git', ['status', '--porcelain', 'src'], { cwd: ROOT, encoding: 'utf8' }).stdout
  if (changed.trim() !== '') throw new Error('--record: src has changes that are not committed')
  return stdout.trim()
}

const record = (suiteRun: SuiteRun): void => {
  const all: SuiteRun[] = fs.existsSync(RECORD) ? JSON.parse(fs.readFileSync(RECORD, 'utf8')) : []
  const kept = bySources([...all, suiteRun])
    .reverse()
    .flat()
  fs.writeFileSync(RECORD, `${JSON.stringify(kept, null, 1)}\n`)
  const readme = fillIn(fs.readFileSync(README, 'utf8'), 'table', renderRecord(kept))
  fs.writeFileSync(README, fillIn(readme, 'boundaries', renderBoundaries()))
}

const { values } = parseArgs({
  options: {
    long: { type: 'boolean', default: false },
    only: { type: 'string' },
    seed: { type: 'string', default: String(Date.now() % SEEDS) },
    record: { type: 'boolean', default: false },
  },
})
const seed = Number(values.seed)
if (!Number.isSafeInteger(seed)) throw new Error('--seed: must be a whole number')
const form = values.long ? 'long' : 'short'
const only = values.only?.split(',') ?? null
const source = values.record ? sourceTree() : ''
const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'opledger-suite-'))
const results = path.join(directory, 'results')
fs.writeFileSync(results, '')
console.log(`the ${form} form, seed ${seed}`)
const startedAt = performance.now()
if (values.long) run('bash', ['test/faults/set-up.sh'])
let status = run('npm', ['run', 'build'])
if (status === 0) {
  const some = only === null ? [] : ['-t', `^(${only.join('|')}):`]
  status = run('npx', ['vitest', 'run', '--config', 'test/faults/vitest.config.ts', ...some], {
    ...process.env,
    FAULT_FORM: form,
    FAULT_SEED: String(seed),
    FAULT_RESULTS: results,
  })
}
const seconds = (performance.now() - startedAt) / 1_000
const suiteRun: SuiteRun = {
  date: new Date().toISOString().slice(0, 10),
  form,
  only,
  source,
  seconds,
  results: readResults(results),
}
fs.rmSync(directory, { recursive: true, force: true })
console.log(`\n${renderTable(sumUp([suiteRun]))}\n`)
console.log(`seed ${seed}, ${form}, ${Math.round(seconds)} s`)
if (values.record) record(suiteRun)
process.exitCode = status
