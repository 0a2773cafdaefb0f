/**
 * A part of a bench as a process of its own: a server, a load, a peer. It is told what to do over its IPC channel, which also
 * tells it when we are gone, whatever ended us. The other end is serve-part.ts.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Closers } from './closers.ts'

export interface Part {
  /** What it said when it was ready. */
  ready: unknown
  /** Runs one of its calls. An error there is an error here, and so is an answer that does not come. */
  call<T>(name: string, argument?: unknown, withinMs?: number): Promise<T>
}

export type PartMessage =
  | { kind: 'ready'; value: unknown }
  | { kind: 'answer'; id: number; value: unknown }
  | { kind: 'failed'; id: number; text: string }

/** It loads its modules, and some make a schema. */
const READY_MS = 60_000
/** No call is meant to take so long: the slowest is a peer at its share of 100,000 jobs. */
const CALL_MS = 20 * 60_000
const STOP_MS = 10_000
const STDERR_CHARS_MAX = 20_000

/** Starts `file` (from bench/) with its settings and waits until it is ready. */
export const startPart = async (closers: Closers, file: string, settings: unknown): Promise<Part> => {
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', fileURLToPath(new URL(`../${file}`, import.meta.url)), JSON.stringify(settings)],
    // what opledger gets, every other side gets
    { env: { ...process.env, NODE_ENV: 'production' }, stdio: ['ignore', 'ignore', 'pipe', 'ipc'] },
  )
  closers.add(() => stopChild(child))
  let stderr = ''
  child.stderr?.on('data', (chunk) => {
    stderr = (stderr + String(chunk)).slice(-STDERR_CHARS_MAX)
  })
  const pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  let lastId = 0
  const ready = new Promise<unknown>((resolve, reject) => {
    child.on('message', (message: PartMessage) => {
      switch (message.kind) {
        case 'ready':
          return resolve(message.value)
        case 'answer':
          return pending.get(message.id)?.resolve(message.value)
        case 'failed':
          return pending.get(message.id)?.reject(new Error(`${file}: ${message.text}`))
      }
    })
    child.once('error', reject)
    child.once('exit', (code, signal) => {
      const error = new Error(`${file} ended (${signal ?? code}): ${stderr}`)
      reject(error)
      for (const { reject: fail } of pending.values()) fail(error)
    })
  })
  const value = await within(READY_MS, ready, () => `${file} was not ready: ${stderr}`)
  return {
    ready: value,
    async call<T>(name: string, argument: unknown = null, withinMs = CALL_MS) {
      if (child.exitCode !== null || !child.connected) throw new Error(`${file} has ended: ${stderr}`)
      const id = ++lastId
      const answer = new Promise<T>((resolve, reject) => {
        pending.set(id, { resolve: resolve as (value: unknown) => void, reject })
        child.send({ id, name, argument })
      })
      return within(withinMs, answer, () => `${file}: ${name} gave no answer`).finally(() => pending.delete(id))
    },
  }
}

const within = async <T>(ms: number, work: Promise<T>, describe: () => string): Promise<T> => {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${describe()} (within ${ms / 1_000} s)`)), ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

/** SIGTERM, and SIGKILL for what does not leave. */
export const stopChild = async (child: ChildProcess): Promise<void> => {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
  await exited
  clearTimeout(timer)
}
