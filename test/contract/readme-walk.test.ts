import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { spawnScript, waitForExit, waitForLine } from '../support/processes.ts'

/** The README's walks, run by a shell as they stand there. What a command prints is the comment below it. */
const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8')

/** Ends the output of one command; its expected output is the comment that follows. */
const SEPARATOR = '\u001e'

/** Some fifty commands, each a new process, on a machine that has other things to do. */
const WALK_MS = 180_000

interface Step {
  command: string
  /** Null: the README says nothing of what it prints. */
  prints: string | null
}

/** The shell blocks of a section, as commands with what they print. */
const stepsOf = (heading: string): Step[] => {
  const from = readme.indexOf(`\n${heading}\n`)
  expect(from, heading).toBeGreaterThan(0)
  const section = readme.slice(from + heading.length + 2)
  const text = section.slice(0, section.search(/^#{2,3} /m))
  const steps: Step[] = []
  for (const [, block = ''] of text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)) {
    let command: string[] = []
    for (const line of [...block.split('\n'), '']) {
      if (line.startsWith('# ')) {
        const last = command.length > 0 ? { command: command.join('\n'), prints: '' } : steps.pop()
        command = []
        if (last) steps.push({ ...last, prints: `${last.prints ?? ''} ${line.slice(2)}` })
      } else command.push(line)
    }
    if (command.some((line) => line !== '')) steps.push({ command: command.join('\n'), prints: null })
  }
  return steps
}

const words = (text: string): string => text.replace(/\s+/g, ' ').trim()

/** A remark stands in parentheses behind the output, `…` for anything, and large numbers differ from run to run. */
const pattern = (prints: string): RegExp => {
  const plain = words(prints.replace(/ {3,}\([^)]*\)/g, ''))
  const escaped = plain.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`^${escaped.replace(/\d{3,}/g, '\\d+').replace(/…/g, '.*')}$`)
}

const run = async (steps: readonly Step[], base: string): Promise<string[]> => {
  const script = steps
    .map(({ command }) => command.replace('http://127.0.0.1:3000', base))
    .map((command) => `${command}\nprintf '${SEPARATOR}'`)
    .join('\n')
  const shell = spawn('bash', ['-c', script], { stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  let errors = ''
  shell.stdout.on('data', (chunk) => {
    output += String(chunk)
  })
  shell.stderr.on('data', (chunk) => {
    errors += String(chunk)
  })
  await waitForExit(shell)
  expect(errors).toBe('')
  return output.split(SEPARATOR).map(words)
}

const asWritten = async (steps: readonly Step[], base: string): Promise<void> => {
  const printed = await run(steps, base)
  const checked = steps.filter((step) => step.prints !== null)
  expect(checked.length).toBeGreaterThan(1)
  for (const [index, step] of steps.entries()) {
    if (step.prints !== null) expect(printed[index], step.command).toMatch(pattern(step.prints))
  }
}

describe('the README', () => {
  const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-walk-'))
  const children: ChildProcess[] = []
  let database: TestDatabase
  let base: string
  let prelude: Step[]

  const start = async (env: Record<string, string>): Promise<void> => {
    const child = spawnScript('../../src/start.ts', [], {
      env: { PATH: process.env.PATH, DATABASE_URL: database.url, OPLEDGER_DATA_DIR: root, LOG_LEVEL: 'warn', ...env },
    })
    children.push(child)
    await waitForLine(child, /^opledger is ready/)
  }
  const stop = async (): Promise<void> => {
    for (const child of children.splice(0)) {
      child.kill('SIGTERM')
      await waitForExit(child)
    }
  }

  beforeAll(async () => {
    database = await createTestDatabase()
    const port = await choosePort(null)
    base = `http://127.0.0.1:${port}`
    // the definitions of `O` and `get`, which every later block uses
    prelude = stepsOf('## A walk with curl').slice(0, 1)
  })
  afterEach(stop)
  afterAll(async () => {
    await database.drop()
    rmSync(root, { recursive: true, force: true })
  })

  it('walks with curl, as written', { timeout: WALK_MS }, async () => {
    await start({ PORT: new URL(base).port })
    await asWritten(stepsOf('## A walk with curl'), base)
  })

  it('walks from a failure to its replay, as written', { timeout: WALK_MS }, async () => {
    const providerPort = await choosePort(null)
    const provider = spawn(
      process.execPath,
      [fileURLToPath(new URL('../../examples/types/provider.mjs', import.meta.url))],
      {
        env: { PORT: String(providerPort) },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    )
    children.push(provider)
    await waitForLine(provider, /^directory service/)
    await start({
      PORT: new URL(base).port,
      DIRECTORY_URL: `http://127.0.0.1:${providerPort}`,
      OPLEDGER_SECRET_DIRECTORY_TOKEN: 'local',
      OPLEDGER_TYPES: fileURLToPath(new URL('../../examples/types/grant-role.yaml', import.meta.url)),
    })
    // its first two blocks start the provider and the service
    const own = stepsOf('### With a type and a provider of your own').slice(2)
    await asWritten([...prelude, ...own], base)
    await asWritten([...prelude, ...stepsOf('### From a failure to its replay')], base)
  })
})
