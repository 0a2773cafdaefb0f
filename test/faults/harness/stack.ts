/**
 * The service under attack: a database of its own, apis and workers of the build as real processes, each behind its own proxy
 * to PostgreSQL and started again when it dies, and the effect server with its fsynced log. With it come a client that keeps
 * its history, and the probe points.
 *
 * Phase one: a test breaks things. Phase two: `settle()` waits without faults until everything is over, and then the
 * invariants are checked. `close()` ends what is left.
 */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import postgres from 'postgres'
import { choosePort } from '../../../src/embedded/postmaster.ts'
import type { EffectLog } from '../../invariants/effect-log.ts'
import { createTestDatabase } from '../../support/database.ts'
import { spawnScript, until, waitForExit, waitForLine } from '../../support/processes.ts'
import type { Random } from '../../support/random.ts'
import { openTcpProxy, type Verdict } from '../../support/tcp-proxy.ts'
import { type Client, openClient, type Recorder } from './client.ts'
import { type Exit, type Launch, type Member, type MemberKind, startMember } from './member.ts'
import { openProbes, type Probes } from './probes.ts'

const RESTART_MS = { min: 100, max: 900 }
const GRACE_MS = 20_000
export const LEASE_MS = 2_000
/** In phase two everything settles within lease + 2 sweeps + 10 s, on a machine that has time. */
const SETTLE_MS = LEASE_MS + 2 * 2_000 + 10_000
const READY_MS = 120_000
/** Of what a process printed that does not come up. */
const TOLD_CHARS = 2_000

/** How many times over the cores are asked for: on such a machine everything takes as many times longer. */
export const stretch = (): number => Math.max(1, (os.loadavg()[0] ?? 0) / os.availableParallelism())
export const stretched = (ms: number): number => ms * stretch()
export const settleMs = (): number => stretched(SETTLE_MS)

/** A place where a process runs, and runs again. */
export interface Slot {
  readonly kind: MemberKind
  /** The process that runs now, or ran last. */
  readonly member: Member
  /** How the earlier ones ended. */
  readonly exits: readonly Exit[]
  /** `http://…` of an api. */
  readonly url: string
  /** No restart any more after the next end. */
  retire(): void
}

export interface StackOptions {
  apis?: number
  workers?: number
  workerConcurrency?: number
  /** Of the database that the processes see; default: a new one on the suite's server. */
  databaseUrl?: string
  /** Files of OPLEDGER_TYPES; default: those of harness/. */
  types?: readonly string[]
  env?: Readonly<Record<string, string>>
  /** False: who dies stays dead. */
  restart?: boolean
  random: Random
  /** What the proxies do with each statement, in lower case. */
  decide?: (statement: string, slot: { kind: MemberKind; number: number }) => Verdict
  /** `url`: where an api is reached that listens elsewhere. */
  launch?: (slot: {
    kind: MemberKind
    number: number
  }) => Partial<Pick<Launch, 'nodeArguments' | 'command' | 'build' | 'env'>> & { url?: string }
  record?: Recorder
}

export interface Effects {
  url: string
  /** By effect key. */
  log(): Promise<EffectLog>
  /** The log once it has stopped growing: requests of a process that was killed may still be on their way. */
  idleLog(): Promise<EffectLog>
  setLookup(mode: 'up' | 'down' | 'unknown'): Promise<void>
}

export interface Stack {
  databaseUrl: string
  /** Straight to the database, not through a proxy. */
  sql: postgres.Sql
  apis: readonly Slot[]
  workers: readonly Slot[]
  client: Client
  effects: Effects
  probes: Probes
  /** Logs of the processes and of the effect server. */
  directory: string
  /** Resolves when every process answers or has started its loop. */
  ready(): Promise<void>
  close(): Promise<void>
}

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))

/** Longer than the effect server takes for any request. */
const QUIET_MS = 300

const startEffects = async (directory: string): Promise<Effects & { stop(): Promise<void> }> => {
  const child = spawnScript('effect-server.ts', ['0', path.join(directory, 'effects.log')])
  const url = (await waitForLine(child, /^effect server on /)).replace(/^effect server on /, '')
  const log: Effects['log'] = async () => (await fetch(`${url}/_log`)).json() as Promise<EffectLog>
  return {
    url,
    log,
    async idleLog() {
      for (let before = await log(); ; ) {
        await sleep(QUIET_MS)
        const now = await log()
        if (JSON.stringify(now) === JSON.stringify(before)) return now
        before = now
      }
    },
    async setLookup(mode) {
      await fetch(`${url}/_lookup`, { method: 'POST', body: JSON.stringify({ mode }) })
    },
    async stop() {
      child.kill('SIGTERM')
      await waitForExit(child)
    },
  }
}

const unrecorded: Recorder = (_facts, call) => call()

export const openStack = async (options: StackOptions): Promise<Stack> => {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'opledger-faults-'))
  const own = options.databaseUrl === undefined ? await createTestDatabase() : null
  const databaseUrl = options.databaseUrl ?? own?.url ?? ''
  // an account asks of a few operations or of thousands by the same statement, and where a server restarts all the time nothing
  // is analysed: loops in loops, planned for a few rows, went on for minutes
  const connection = { plan_cache_mode: 'force_custom_plan', enable_nestloop: 'off' }
  const sql = postgres(databaseUrl, { max: 3, onnotice: () => {}, connection })
  if (own) await sql`create table fault_rows (item_key text not null)`
  const effects = await startEffects(directory)
  const probes = openProbes()
  let closing = false

  const openSlot = async (kind: MemberKind, number: number): Promise<Slot & { end(): Promise<void> }> => {
    const place = { kind, number }
    const { decide } = options
    const proxy = await openTcpProxy(databaseUrl, decide && ((statement) => decide(statement, place)))
    const port = kind === 'api' ? await choosePort(null) : 0
    const output = fs.createWriteStream(path.join(directory, `${kind}-${number}.log`))
    const exits: Exit[] = []
    let retired = options.restart === false
    let restart: NodeJS.Timeout | undefined
    const start = (): Member => {
      const { url: _url, ...special } = options.launch?.(place) ?? {}
      const started = startMember({
        kind,
        proxy,
        ...special,
        env: {
          PATH: process.env.PATH ?? '',
          HOME: process.env.HOME ?? '',
          DATABASE_URL: proxy.url,
          OPLEDGER_TYPES: (options.types ?? [here('types.yaml'), here('types-protocol.yaml'), here('types.mjs')]).join(
            ',',
          ),
          FAULTS_EFFECTS_URL: effects.url,
          LOG_LEVEL: 'info',
          ...(kind === 'api'
            ? { PORT: String(port), AUTH: 'off' }
            : { WORKER_CONCURRENCY: String(options.workerConcurrency ?? 4) }),
          ...options.env,
          ...special.env,
        },
      })
      started.child.stdout?.pipe(output, { end: false })
      started.child.stderr?.pipe(output, { end: false })
      void probes.watch(started)
      started.onExit((exit) => {
        exits.push(exit)
        if (closing || retired) return
        const wait = RESTART_MS.min + options.random.below(RESTART_MS.max - RESTART_MS.min)
        restart = setTimeout(() => {
          member = start()
        }, wait)
      })
      return started
    }
    let member = start()
    return {
      kind,
      exits,
      url: options.launch?.(place).url ?? `http://127.0.0.1:${port}`,
      get member() {
        return member
      },
      retire() {
        retired = true
        clearTimeout(restart)
      },
      async end() {
        retired = true
        clearTimeout(restart)
        member.signal('SIGCONT')
        member.signal('SIGTERM')
        const killer = setTimeout(() => member.signal('SIGKILL'), GRACE_MS)
        await member.exited
        clearTimeout(killer)
        await proxy.close()
        output.end()
      },
    }
  }

  const open = (kind: MemberKind, count: number) =>
    Promise.all(Array.from({ length: count }, (_, number) => openSlot(kind, number)))
  const [apis, workers] = await Promise.all([open('api', options.apis ?? 1), open('worker', options.workers ?? 2)])
  const client = openClient(() => apis.map(({ url }) => url), options.record ?? unrecorded)

  const isReady = async (slot: Slot): Promise<boolean> => {
    const { member } = slot
    if (!member.isRunning && options.restart === false) throw new Error(`a process ended: ${member.output()}`)
    if (slot.kind === 'worker') return member.output().includes('worker started')
    return fetch(`${slot.url}/readyz`).then(
      (response) => response.ok,
      () => false,
    )
  }
  const stack: Stack = {
    databaseUrl,
    sql,
    apis,
    workers,
    client,
    effects,
    probes,
    directory,
    async ready() {
      for (const slot of [...apis, ...workers]) {
        await until(`${slot.kind} is ready`, () => isReady(slot), READY_MS).catch((error: unknown) => {
          const ends = JSON.stringify(slot.exits)
          throw new Error(`${error}; ends before: ${ends}; it said: ${slot.member.output().slice(-TOLD_CHARS)}`)
        })
      }
    },
    async close() {
      closing = true
      await client.close()
      await Promise.all([...apis, ...workers].map((slot) => slot.end()))
      await effects.stop()
      await sql.end()
      await own?.drop()
      fs.rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
    },
  }
  try {
    await stack.ready()
  } catch (error) {
    await stack.close()
    throw error
  }
  return stack
}
