import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type Fault, faultTest } from './harness/fault.ts'
import { expectNoExits, startLoad, withServer, withStackOn } from './harness/load.ts'
import { openStack } from './harness/stack.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const CLI = path.join(ROOT, 'dist', 'cli.js')
/** Looked through for one with fewer migrations. */
const VERSIONS_MAX = 500
const BUILD_MS = 300_000
const EXIT_CONFIGURATION = 78
/** Without the transactional types of the suite, which are made with the new version's `defineOperationType`. */
const TYPES = [fileURLToPath(new URL('harness/types.yaml', import.meta.url))]

interface Ended {
  code: number | null
  output: string
}

const runEntry = (entry: string, args: readonly string[], env: Readonly<Record<string, string>>): Promise<Ended> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, [entry, ...args], {
      env: { PATH: process.env.PATH ?? '', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let output = ''
    const collect = (chunk: unknown): void => {
      output += String(chunk)
    }
    child.stdout.on('data', collect)
    child.stderr.on('data', collect)
    child.on('close', (code) => resolve({ code, output }))
  })

const inShell = (command: string): string => {
  const { status, stdout, stderr } = spawnSync('bash', ['-c', `set -o pipefail; ${command}`], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: BUILD_MS,
  })
  if (status !== 0) throw new Error(`${command}: ${stderr.trim()}`)
  return stdout.trim()
}

/** The migrations of a commit: one line each, with the hash of its text. */
const migrationsOf = (commit: string): string[] =>
  inShell(`git ls-tree -r ${commit} drizzle`)
    .split('\n')
    .filter((line) => line.endsWith('.sql'))

/** The last version that had fewer migrations, none of which has changed since. Null: the history does not go back so far. */
const findOldVersion = (): string | null => {
  const known = new Set(migrationsOf('HEAD'))
  for (const commit of inShell(`git rev-list --first-parent --max-count=${VERSIONS_MAX} HEAD`).split('\n')) {
    const migrations = migrationsOf(commit)
    if (migrations.length === 0) return null
    if (migrations.length < known.size && migrations.every((migration) => known.has(migration))) return commit
  }
  return null
}

/** Its build; ends the test as skipped where the history is not there. */
const buildOldVersion = (fault: Fault, directory: string): string => {
  const commit = findOldVersion()
  if (commit === null) {
    return fault.skip('the history of the repository is not here (a shallow clone?): no older version can be built')
  }
  inShell(`git archive ${commit} | tar -x -C '${directory}'`)
  const own = path.join(directory, 'package-lock.json')
  if (readFileSync(own, 'utf8') === readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')) {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(directory, 'node_modules'))
  } else {
    // not `npm ci`: between two merges a lock file may lag behind its package.json
    inShell(`cd '${directory}' && npm install --no-audit --no-fund`)
  }
  inShell(`cd '${directory}' && npm run build`)
  return path.join(directory, 'dist')
}

faultTest(
  'F26',
  'old and new version side by side on a schema of the new one: the old one works on and stays correct, and refuses to start anew',
  { short: null, long: 2 },
  async (fault) => {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-old-'))
    try {
      const build = buildOldVersion(fault, directory)
      await fault.each(({ seed }) =>
        withServer({}, async (server) => {
          const env = {
            DATABASE_URL: server.url,
            OPLEDGER_TYPES: TYPES.join(','),
            FAULTS_EFFECTS_URL: 'http://127.0.0.1:9',
          }
          expect(await runEntry(path.join(build, 'cli.js'), ['migrate'], env)).toMatchObject({ code: 0 })
          await server.query('create table fault_rows (item_key text not null)')
          const options = { apis: 1, workers: 1, types: TYPES, random: seededRandom(seed) }
          const old = await openStack({ ...options, databaseUrl: server.url, launch: () => ({ build }) })
          try {
            const oldLoad = startLoad(old, { name: `f26o-${seed}`, types: ['fault-asked'], delayMs: 20 })
            await oldLoad.more(5)
            // withStackOn brings the schema up to the new version, under the load of the old one
            await withStackOn(server, { ...options, env: { FAULTS_EFFECTS_URL: old.effects.url } }, async (opened) => {
              const both = { ...opened, effects: old.effects }
              const newLoad = startLoad(both, { name: `f26n-${seed}`, types: ['fault-asked'], delayMs: 20 })
              await newLoad.more(10)
              await oldLoad.more(5)
              await Promise.all([oldLoad.stop(), newLoad.stop()])
              await newLoad.expectWhole()
              await oldLoad.expectWhole()
              expectNoExits(opened)
              expectNoExits(old)
              for (const entry of ['worker.js', 'api.js']) {
                const { code, output } = await runEntry(path.join(build, entry), [], { ...env, AUTH: 'off' })
                expect(code).toBe(EXIT_CONFIGURATION)
                expect(output).toContain('the schema is newer than this version of opledger')
              }
              const ready = await fetch(`${old.apis[0]?.url}/readyz`)
              expect(ready.status).toBe(503)
            })
          } finally {
            await old.close()
          }
        }),
      )
    } finally {
      rmSync(directory, { recursive: true, force: true })
    }
  },
)

const MIGRATORS = 5

faultTest(
  'F26',
  'five processes migrate one empty database at once: each migration is applied once, and all of them go on',
  { short: null, long: 15 },
  (fault) =>
    withServer({}, (server) =>
      fault.each(async ({ seed }) => {
        const name = `f26_${seed}`
        await server.query(`create database ${name}`)
        const url = new URL(server.url)
        url.pathname = `/${name}`
        const ended = await Promise.all(
          Array.from({ length: MIGRATORS }, () => runEntry(CLI, ['migrate'], { DATABASE_URL: url.href })),
        )
        expect(ended.map(({ code }) => code)).toEqual(Array(MIGRATORS).fill(0))
        const applied = ended.filter(({ output }) => output.includes('Migrations applied')).length
        expect([applied, ended.filter(({ output }) => output.includes('up to date')).length]).toEqual([
          1,
          MIGRATORS - 1,
        ])
        await server.query(`drop database ${name} with (force)`)
      }),
    ),
)
