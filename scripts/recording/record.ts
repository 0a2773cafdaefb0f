/**
 * Records docs/images/cli.svg: `npm run record`. A service of its own with the provider of the examples, a file of 1,500 users
 * with one that is turned away three times (`busy`) and one whose call is never answered (`lost`), and session.sh in a pseudo
 * terminal. Needs bash, and `script` of util-linux.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { spawnScript, waitForExit, waitForLine } from '../../test/support/processes.ts'
import { paced, renderSvg } from './svg.ts'
import { type Chunk, readScreen } from './terminal.ts'

const COLUMNS = 104
const ROWS = 32
const USERS = 1_500

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))
const OUTPUT = here('../../docs/images/cli.svg')

/** The two whose bad day it is come last, so that the others show how it runs. */
const usersFile = (): string => {
  const others = Array.from({ length: USERS - 4 }, (_, index) => `user-${index + 1}`)
  return `user,role\n${['ada', 'grace', ...others, 'busy', 'lost'].map((user) => `${user},auditor\n`).join('')}`
}

/** `opledger` as a user has it, and a file of users. */
const furnish = (directory: string): void => {
  mkdirSync(path.join(directory, 'bin'))
  const command = path.join(directory, 'bin', 'opledger')
  writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${here('../../bin/opledger.js')}' "$@"\n`)
  chmodSync(command, 0o755)
  writeFileSync(path.join(directory, 'users.csv'), usersFile())
}

const recordSession = async (directory: string, url: string): Promise<Chunk[]> => {
  const session = `stty cols ${COLUMNS} rows ${ROWS}; exec bash '${here('session.sh')}'`
  const child = spawn('script', ['--quiet', '--flush', '--return', '--command', session, '/dev/null'], {
    cwd: directory,
    env: {
      PATH: `${path.join(directory, 'bin')}:${path.dirname(process.execPath)}:/usr/bin:/bin`,
      HOME: directory,
      LANG: 'C.UTF-8',
      SHELL: '/bin/bash',
      OPLEDGER_URL: url,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const chunks: Chunk[] = []
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (text: string) => chunks.push({ atMs: performance.now(), text }))
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`the session ended with ${code}:\n${chunks.map(({ text }) => text).join('')}`)
  return chunks
}

const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-record-'))
const children: ChildProcess[] = []
try {
  furnish(directory)
  const [port, providerPort] = [await choosePort(null), await choosePort(null)]
  const environment = { PATH: process.env.PATH, PORT: String(providerPort) }
  const provider = spawn(process.execPath, [here('../../examples/types/provider.mjs')], { env: environment })
  children.push(provider)
  await waitForLine(provider, /^directory service on/)
  const service = spawnScript('../../src/start.ts', [], {
    env: {
      PATH: process.env.PATH,
      PORT: String(port),
      OPLEDGER_DATA_DIR: path.join(directory, 'data'),
      OPLEDGER_TYPES: here('types.yaml'),
      DIRECTORY_URL: `http://127.0.0.1:${providerPort}`,
      LOG_LEVEL: 'warn',
    },
  })
  children.push(service)
  await waitForLine(service, /^opledger is ready/)
  const chunks = await recordSession(directory, `http://127.0.0.1:${port}`)
  const svg = renderSvg(readScreen(paced(chunks), COLUMNS), {
    columns: COLUMNS,
    rows: ROWS,
    title: 'The command line of opledger',
    description:
      'A file of users is submitted; one of them stays uncertain. The preflight of a replay is blocked with exit code 3, the case is closed with evidence, and the replay does the one item that is missing.',
  })
  mkdirSync(path.dirname(OUTPUT), { recursive: true })
  writeFileSync(OUTPUT, svg)
  process.stdout.write(`${OUTPUT}: ${Math.ceil(svg.length / 1024)} KiB\n`)
} finally {
  for (const child of children.reverse()) {
    child.kill('SIGTERM')
    await waitForExit(child)
  }
  rmSync(directory, { recursive: true, force: true })
}
