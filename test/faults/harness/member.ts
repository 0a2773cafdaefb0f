/** One process of the service under test: an api or a worker of the build, behind its own proxy to PostgreSQL. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { TcpProxy } from '../../support/tcp-proxy.ts'

export type MemberKind = 'api' | 'worker'

export interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

export interface Member {
  readonly kind: MemberKind
  readonly pid: number
  readonly child: ChildProcess
  /** Between this process and PostgreSQL. */
  readonly proxy: TcpProxy
  readonly isRunning: boolean
  readonly isFrozen: boolean
  readonly exited: Promise<Exit>
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>
  /** SIGSTOP now, SIGCONT after so many ms or then; resolves when it moves again. Freezing a frozen one changes nothing. */
  freeze(until: number | Promise<unknown>): Promise<void>
  signal(name: NodeJS.Signals): void
  /** To the probe agent in it. */
  send(message: object): void
  /** The same, and waits until the agent has taken it. A frozen process takes it before it does anything else. */
  ask(message: object): Promise<void>
  onMessage(listener: (message: unknown) => void): void
  onExit(listener: (exit: Exit) => void): void
  /** What it printed: JSON lines. */
  output(): string
}

/** That listen to one process at a time. */
const TRAPS_MAX = 100
/** Kept of each stream for a test that failed. */
const OUTPUT_CHARS_MAX = 4_000_000

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))

/** What is put in front of `node`, such as a clock that is wrong; and what the process gets besides its environment. */
export interface Launch {
  kind: MemberKind
  env: Readonly<Record<string, string>>
  proxy: TcpProxy
  nodeArguments?: readonly string[]
  /** A command that runs it, such as one that enters a namespace. */
  command?: readonly string[]
  /** The folder of the build that is started, when it is another version. */
  build?: string
}

export const startMember = ({ kind, env, proxy, nodeArguments = [], command = [], build }: Launch): Member => {
  const entry = build === undefined ? here(`../../../dist/${kind}.js`) : `${build}/${kind}.js`
  const agent = build === undefined ? ['--import', here('probe-agent.mjs')] : []
  const [program = '', ...args] = [...command, process.execPath, ...nodeArguments, ...agent, entry]
  const child = spawn(program, args, {
    env,
    // the channel also tells the process when we are gone, whatever ended us
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      text = (text + String(chunk)).slice(-OUTPUT_CHARS_MAX)
    })
  }
  child.on('error', () => {})
  child.setMaxListeners(TRAPS_MAX)
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null
  let thawed: Promise<void> | null = null
  let asked = 0
  const exited = once(child, 'exit').then(([code, signal]): Exit => ({ code, signal }))

  const send = (message: object): void => {
    // a process may die between the question and the answer
    if (isRunning() && child.connected) child.send(message, () => {})
  }
  return {
    kind,
    pid: child.pid ?? 0,
    child,
    proxy,
    exited,
    get isRunning() {
      return isRunning()
    },
    get isFrozen() {
      return thawed !== null
    },
    async kill() {
      child.kill('SIGKILL')
      await exited
    },
    freeze(until) {
      if (!isRunning()) return Promise.resolve()
      if (thawed !== null) return thawed
      child.kill('SIGSTOP')
      thawed = (typeof until === 'number' ? sleep(until) : until)
        .then(
          () => {},
          () => {},
        )
        .then(() => {
          child.kill('SIGCONT')
          thawed = null
        })
      return thawed
    },
    signal: (name) => void child.kill(name),
    send,
    async ask(message) {
      const ask = ++asked
      const taken = new Promise<void>((resolve) => {
        const listener = (answer: unknown): void => {
          if (typeof answer !== 'object' || answer === null || !('asked' in answer) || answer.asked !== ask) return
          child.off('message', listener)
          resolve()
        }
        child.on('message', listener)
      })
      send({ ...message, ask })
      if (isRunning() && thawed === null && build === undefined) await Promise.race([taken, exited])
    },
    onMessage: (listener) => void child.on('message', listener),
    onExit: (listener) => void exited.then(listener),
    output: () => text,
  }
}
