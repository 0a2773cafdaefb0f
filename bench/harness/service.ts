/** Opledger as it runs in production: api and workers of the build, each a process, and the calls that benches make. */
import { type ChildProcess, spawn } from 'node:child_process'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import { choosePort } from '../../src/embedded/postmaster.ts'
import type { Closers } from './closers.ts'
import { stopChild } from './part.ts'

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))
const TYPES = [here('../types/types.yaml'), here('../types/types.mjs')].join(',')
const READY_MS = 60_000
const READY_REQUEST_MS = 2_000
const LOOK_MS = 20
/** Of the answer to a long poll. */
const WAIT_SECONDS = 50
const SETTLE_TRIES = 60
const OUTPUT_CHARS_MAX = 20_000

export interface Process {
  pid: number
  stop(): Promise<void>
}

export interface Operation {
  id: string
  status: string
  version: number
  counts: { total: number; applied: number; skipped: number; failed: number; uncertain: number; unprocessed: number }
  cancel: { acknowledged_at: string | null }
}

export interface Api extends Process {
  url: string
  submit(body: object): Promise<Operation>
  /** A draft with `count` items, uploaded as a stream. */
  draft(type: string, count: number, item: (n: number) => { key: string; input: object }): Promise<string>
  start(id: string): Promise<void>
  get(id: string): Promise<Operation>
  cancel(id: string): Promise<Operation>
  /** Once it is final. Throws where it ended otherwise. */
  settled(id: string, status: string): Promise<Operation>
}

const environment = (databaseUrl: string, providerUrl: string, more: Record<string, string>): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH ?? '',
  HOME: process.env.HOME ?? '',
  DATABASE_URL: databaseUrl,
  OPLEDGER_TYPES: TYPES,
  BENCH_PROVIDER_URL: providerUrl,
  NODE_ENV: 'production',
  ...more,
})

let profiles: string | null = null

/** From now on each process that is started writes a CPU profile into `directory` when it ends. */
export const profileInto = (directory: string): void => {
  profiles = directory
}

const launch = (
  closers: Closers,
  entry: 'api' | 'worker',
  env: NodeJS.ProcessEnv,
): { child: ChildProcess; output(): string } => {
  const flags = profiles === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${profiles}/${entry}`]
  const child = spawn(process.execPath, [...flags, here(`../../dist/${entry}.js`)], {
    env,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  closers.add(() => stopChild(child))
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      text = (text + String(chunk)).slice(-OUTPUT_CHARS_MAX)
    })
  }
  return { child, output: () => text }
}

const until = async (
  what: string,
  child: ChildProcess,
  output: () => string,
  holds: () => boolean | Promise<boolean>,
) => {
  const giveUpAt = performance.now() + READY_MS
  while (!(await holds())) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`${what} ended: ${output()}`)
    if (performance.now() > giveUpAt) throw new Error(`${what} was not ready in ${READY_MS / 1_000} s: ${output()}`)
    await sleep(LOOK_MS)
  }
}

export interface ServiceOptions {
  databaseUrl: string
  /** Where external types send to. */
  providerUrl?: string
}

/** A provider that nobody calls. */
const NOWHERE = 'http://127.0.0.1:9'

export const startWorker = async (
  closers: Closers,
  { databaseUrl, providerUrl = NOWHERE, concurrency = 8 }: ServiceOptions & { concurrency?: number },
): Promise<Process> => {
  const more = { WORKER_CONCURRENCY: String(concurrency), LOG_LEVEL: 'info' }
  const { child, output } = launch(closers, 'worker', environment(databaseUrl, providerUrl, more))
  await until('the worker', child, output, () => output().includes('"worker started"'))
  return { pid: child.pid ?? 0, stop: () => stopChild(child) }
}

export const startApi = async (
  closers: Closers,
  { databaseUrl, providerUrl = NOWHERE }: ServiceOptions,
): Promise<Api> => {
  const port = await choosePort(null)
  const url = `http://127.0.0.1:${port}`
  const more = { PORT: String(port), AUTH: 'off', LOG_LEVEL: 'warn' }
  const { child, output } = launch(closers, 'api', environment(databaseUrl, providerUrl, more))
  const ready = () =>
    fetch(`${url}/readyz`, { signal: AbortSignal.timeout(READY_REQUEST_MS) }).then(
      (response) => response.ok,
      () => false,
    )
  await until('the api', child, output, ready)
  const pool = new Pool(url, { connections: 16, headersTimeout: 300_000, bodyTimeout: 300_000 })
  closers.add(() => pool.destroy())

  const ask = async <T>(method: 'GET' | 'POST', path: string, body?: object, headers = {}): Promise<T> => {
    const answer = await pool.request({
      method,
      path,
      headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await answer.body.text()
    if (answer.statusCode >= 300) throw new Error(`${method} ${path} answered ${answer.statusCode}: ${text}`)
    return JSON.parse(text) as T
  }
  const at = (id: string): string => `/operations/${id}`
  const settled = async (id: string, status: string): Promise<Operation> => {
    for (let tries = 0; tries < SETTLE_TRIES; tries++) {
      const operation = await ask<Operation>('GET', at(id), undefined, { prefer: `wait=${WAIT_SECONDS}` })
      if (operation.status === status) return operation
      if (operation.status !== 'running' && operation.status !== 'pending' && operation.status !== 'cancel_requested')
        throw new Error(`${id} is ${operation.status}, not ${status}: ${JSON.stringify(operation.counts)}`)
    }
    throw new Error(`${id} did not become ${status}`)
  }
  return {
    url,
    pid: child.pid ?? 0,
    stop: () => stopChild(child),
    submit: (body) => ask<Operation>('POST', '/operations', body),
    async draft(type, count, item) {
      const { id } = await ask<Operation>('POST', '/operations', { type, draft: true })
      const answer = await pool.request({
        method: 'POST',
        path: `${at(id)}/items`,
        headers: { 'content-type': 'application/x-ndjson' },
        body: Readable.from(lines(count, item)),
      })
      const text = await answer.body.text()
      if (answer.statusCode !== 200) throw new Error(`the upload answered ${answer.statusCode}: ${text}`)
      return id
    },
    start: async (id) => void (await ask('POST', `${at(id)}/start`, {})),
    get: (id) => ask<Operation>('GET', at(id)),
    cancel: (id) => ask<Operation>('POST', `${at(id)}/cancel`, {}),
    settled,
  }
}

const LINES_AT_A_TIME = 1_000

async function* lines(count: number, item: (n: number) => object): AsyncGenerator<string> {
  for (let from = 0; from < count; from += LINES_AT_A_TIME) {
    let text = ''
    for (let n = from; n < Math.min(count, from + LINES_AT_A_TIME); n++) text += `${JSON.stringify(item(n))}\n`
    yield text
  }
}
