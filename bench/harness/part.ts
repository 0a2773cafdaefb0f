/**
 * A part of a bench as a process of its own: a server, a load, a peer. It is told what to do over its IPC channel, which also
 * tells it when we are gone, whatever ended us. The other end is serve-part.ts.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Closers } from './closers.ts'

export interface Part {
  pid: number
  /** What it said when it was ready. */
  ready: unknown
  /** Runs one of its calls. An error there is an error here. */
  call<T>(name: string, argument?: unknown): Promise<T>
  stop(): Promise<void>
}

export type PartMessage =
  | { kind: 'ready'; value: unknown }
  | { kind: 'answer'; id: number; value: unknown }
  | { kind: 'failed'; id: number; text: string }

const STOP_MS = 10_000
const STDERR_CHARS_MAX = 20_000

/** Starts `file` (from bench/) with its settings and waits until it is ready. */
export const startPart = async (closers: Closers, file: string, settings: unknown): Promise<Part> => {
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', fileURLToPath(new URL(`../${file}`, import.meta.url)), JSON.stringify(settings)],
    { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] },
  )
  closers.add(() => stopChild(child))
  let stderr = ''
  child.stderr?.on('data', (chunk) => {
    stderr = (stderr + String(chunk)).slice(-STDERR_CHARS_MAX)
  })
  const pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  let lastId = 0
  let stopping = false
  const ready = new Promise<unknown>((resolve, reject) => {
    child.on('message', (message: PartMessage) => {
      switch (message.kind) {
        case 'ready':
          return resolve(message.value)
        case 'answer':
          pending.get(message.id)?.resolve(message.value)
          return void pending.delete(message.id)
        case 'failed':
          pending.get(message.id)?.reject(new Error(`${file}: ${message.text}`))
          return void pending.delete(message.id)
      }
    })
    child.once('exit', (code, signal) => {
      const error = new Error(`${file} ended (${signal ?? code}): ${stderr}`)
      reject(error)
      if (!stopping) for (const { reject: fail } of pending.values()) fail(error)
    })
  })
  const value = await ready
  return {
    pid: child.pid ?? 0,
    ready: value,
    call: <T>(name: string, argument: unknown = null) =>
      new Promise<T>((resolve, reject) => {
        if (child.exitCode !== null || !child.connected) return reject(new Error(`${file} has ended: ${stderr}`))
        const id = ++lastId
        pending.set(id, { resolve: resolve as (value: unknown) => void, reject })
        child.send({ id, name, argument })
      }),
    async stop() {
      stopping = true
      await stopChild(child)
    },
  }
}

/** SIGTERM, and SIGKILL for what does not leave. */
export const stopChild = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
  await exited
  clearTimeout(timer)
}
