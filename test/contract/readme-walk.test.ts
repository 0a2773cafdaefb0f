import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { spawnScript, waitForExit, waitForLine } from '../support/processes.ts'
import { commandsOf, type ShellBlock, shellBlocksOf, type WalkSettings, walk } from '../support/walks.ts'

/** Some hundred commands, each a new process, on a machine that has other things to do. */
const WALKS_MS = 300_000

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const PAGES = readdirSync(`${ROOT}docs`).filter((name) => name.endsWith('.md'))
const DOCUMENTS = ['README.md', ...PAGES.map((name) => `docs/${name}`)]

/** With the service as `npm start` brings it, and with the types and the provider of the examples. */
const WALKS = {
  plain: {
    readme: ['## A walk with curl'],
    pages: ['docs/after.md', 'docs/artifacts.md', 'docs/bulk-actions.md', 'docs/webhooks.md'],
  },
  own: {
    readme: [
      '### With a type and a provider of your own',
      '### From a failure to its replay',
      '### Take it back', // of the shell above: it undoes what stands in $GRANT
    ],
    pages: ['docs/callbacks.md', 'docs/compensation.md', 'docs/steps.md'],
  },
}

/** Pages about what nobody can walk here, such as the restore of a database, or what tests of their own show: they have no shell block. */
const WITHOUT_BLOCKS = [
  'docs/audit.md',
  'docs/cli.md',
  'docs/limits.md',
  'docs/observability.md',
  'docs/restore.md',
  'docs/retention.md',
  'docs/sdk.md',
  'docs/security.md',
  'docs/worker-api.md',
]

/** Blocks that are not walked, by how they begin: this test starts what they start, on ports and with a secret of its own. */
const STARTED_HERE = [
  'npm install && npm start',
  'node examples/types/provider.mjs',
  'DIRECTORY_URL=http://127.0.0.1:4000 ',
  'WEBHOOK_SECRET=$(cat .opledger/webhook-secret) node examples/webhooks/receiver.mjs',
  'export WEBHOOK_SECRET=whsec_',
]
const isWalked = ({ text }: ShellBlock): boolean => !STARTED_HERE.some((begin) => text.startsWith(begin))

const blocksOf = (document: string, headings?: readonly string[]): ShellBlock[] =>
  shellBlocksOf(document).filter((block) => isWalked(block) && (headings?.includes(block.heading) ?? true))

/** The definitions of `O` and `get`, which every later block uses. */
const prelude = blocksOf('README.md', WALKS.plain.readme).slice(0, 1)

describe('the documents', () => {
  it('have no shell block that is neither walked nor started by this test', () => {
    const { plain, own } = WALKS
    expect(['README.md', ...plain.pages, ...own.pages, ...WITHOUT_BLOCKS].toSorted()).toEqual(DOCUMENTS.toSorted())
    expect(WITHOUT_BLOCKS.flatMap(shellBlocksOf)).toEqual([])
    const walked = [...plain.readme, ...own.readme]
    expect([...new Set(blocksOf('README.md').map(({ heading }) => heading))]).toEqual(walked)
    const begins = DOCUMENTS.flatMap(shellBlocksOf).map(({ text }) => text)
    for (const begin of STARTED_HERE)
      expect(
        begins.some((text) => text.startsWith(begin)),
        begin,
      ).toBe(true)
  })

  it.each(DOCUMENTS.filter((name) => !WITHOUT_BLOCKS.includes(name)))(
    '%s begins its commands with the definitions that they use',
    (document) => {
      expect(blocksOf(document)[0]?.text).toBe(prelude[0]?.text)
    },
  )

  it('foretells no state that a worker ends at a time of its own', () => {
    const foretold = DOCUMENTS.flatMap(shellBlocksOf).flatMap(commandsOf)
    expect(foretold.filter(({ prints }) => /^(pending|running|sending)\b/.test(prints ?? ''))).toEqual([])
  })

  it.each([...DOCUMENTS, 'CONTRIBUTING.md'])('%s links to what there is', (document) => {
    const text = readFileSync(`${ROOT}${document}`, 'utf8')
    for (const [, target = '', anchor] of text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)) {
      const file = target === '' ? `${ROOT}${document}` : path.join(ROOT, path.dirname(document), target)
      expect(existsSync(file), `${document}: ${target}`).toBe(true)
      if (anchor !== undefined) expect(anchorsOf(file), `${document}: ${target}#${anchor}`).toContain(anchor)
    }
  })
})

const anchorsOf = (file: string): string[] =>
  [...readFileSync(file, 'utf8').matchAll(/^#{1,6} (.*)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )

/** One that fails does not leave the shells of the others behind. */
const allOf = async (walks: readonly Promise<void>[]): Promise<void> => {
  for (const ended of await Promise.allSettled(walks)) if (ended.status === 'rejected') throw ended.reason
}

describe('a newcomer', () => {
  const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-walk-'))
  const children: ChildProcess[] = []
  let database: TestDatabase
  let port: number
  let settings: WalkSettings

  const start = async (env: Record<string, string> = {}): Promise<void> => {
    const given = { DATABASE_URL: database.url, OPLEDGER_DATA_DIR: root, LOG_LEVEL: 'warn', PORT: String(port) }
    const child = spawnScript('../../src/start.ts', [], { env: { PATH: process.env.PATH, ...given, ...env } })
    children.push(child)
    await waitForLine(child, /^opledger is ready/)
  }
  const startExample = async (file: string, ready: RegExp, env: Record<string, string>): Promise<void> => {
    const child = spawn(process.execPath, [`${ROOT}examples/${file}`], { env, stdio: ['ignore', 'pipe', 'inherit'] })
    children.push(child)
    await waitForLine(child, ready)
  }
  const walkPages = async (pages: readonly string[]): Promise<void> => {
    for (const page of pages) await walk(blocksOf(page), settings)
  }

  beforeAll(async () => {
    database = await createTestDatabase()
    port = await choosePort(null)
  })
  afterEach(async () => {
    for (const child of children.splice(0)) {
      child.kill('SIGTERM')
      await waitForExit(child)
    }
  })
  afterAll(async () => {
    await database.drop()
    rmSync(root, { recursive: true, force: true })
  })

  it('walks with curl, as written', { timeout: WALKS_MS }, async () => {
    await start()
    const receiverPort = await choosePort(null)
    await startExample('webhooks/receiver.mjs', /^webhooks are received/, {
      PORT: String(receiverPort),
      WEBHOOK_SECRET: readFileSync(path.join(root, 'webhook-secret'), 'utf8').trim(),
    })
    settings = {
      instead: {
        'http://127.0.0.1:3000': `http://127.0.0.1:${port}`,
        'http://127.0.0.1:4001': `http://127.0.0.1:${receiverPort}`,
      },
    }
    const { readme, pages } = WALKS.plain
    // beside each other: both mostly wait
    await allOf([walk(blocksOf('README.md', readme), settings), walkPages(pages)])
  })

  it('walks with a type and a provider of their own, as written', { timeout: WALKS_MS }, async () => {
    const providerPort = await choosePort(null)
    const secret = `whsec_${randomBytes(32).toString('base64')}`
    await startExample('types/provider.mjs', /^directory service/, { PORT: String(providerPort) })
    await start({
      DIRECTORY_URL: `http://127.0.0.1:${providerPort}`,
      OPLEDGER_SECRET_DIRECTORY_TOKEN: 'local',
      OPLEDGER_SECRET_DIRECTORY_WEBHOOK: secret,
      OPLEDGER_TYPES: ['grant-role', 'grant-by-callback', 'hand-over']
        .map((name) => `${ROOT}examples/types/${name}.yaml`)
        .join(),
    })
    settings = {
      instead: {
        'http://127.0.0.1:3000': `http://127.0.0.1:${port}`,
        'http://127.0.0.1:4000': `http://127.0.0.1:${providerPort}`,
      },
      env: { WEBHOOK_SECRET: secret },
    }
    const { readme, pages } = WALKS.own
    // the provider numbers its grants, and the README knows the first two
    await walk([...prelude, ...blocksOf('README.md', readme)], settings)
    await allOf(pages.map((page) => walkPages([page])))
  })
})
