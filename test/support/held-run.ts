import { vi } from 'vitest'
import type { OperationType } from '../../src/domain/operation-type.ts'
import type { RunContext } from '../../src/engine/context.ts'
import { HeldShard } from '../../src/engine/held-shard.ts'
import type { Log } from '../../src/log.ts'
import { NO_OBJECT_STORE, type ObjectStore } from '../../src/objects/object-store.ts'
import { installProbe, type ProbeSubject } from '../../src/probe.ts'
import type { Connection } from '../../src/storage/connection.ts'
import type { Database } from '../../src/storage/database.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import type { RunnableItem } from '../../src/storage/run/window.ts'
import { plantedType } from './planted-operation.ts'

/** For tests of what the engine decides in memory: no database, no time that passes by itself. */

export const OPERATION_ID = '01a227d2-35e5-75d9-9237-76292d086ea0'
export const WORKER_ID = '5f6c2c1e-7e0f-4c8e-9a53-0c6a9f2a7a11'

export const claimedShard = (over: Partial<ClaimedShard> = {}): ClaimedShard => ({
  tenantId: 7,
  operationId: OPERATION_ID,
  shard: 0,
  workerId: WORKER_ID,
  epoch: 3,
  type: 'grant',
  fromOrd: 0,
  toOrd: 10,
  cursor: 0,
  traceparent: 'trace',
  steps: [],
  claims: 1,
  claimsBefore: 0,
  isolateUntil: null,
  stopRequested: null,
  switchedOff: false,
  compensating: false,
  doubt: null,
  ...over,
})

export const holdShard = (over: Partial<ClaimedShard> = {}, type: Partial<OperationType> = {}): HeldShard =>
  new HeldShard(claimedShard(over), plantedType('grant', type), performance.now())

/** The first step of the shard, where its items have steps, as `readWindow` tells it. */
export const runnableItem = (ord: number, step = ''): RunnableItem => ({
  ord,
  key: `k${ord}`,
  step,
  effectKey: step === '' ? `e${ord}` : `e${ord}/${step}`,
  input: { n: ord },
})

/** The time of `performance` and of all timers is the test's; `tick` lets it pass, 0: only what is due already. */
export const useTestClock = (): { tick(ms?: number): Promise<void> } => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance', 'Date'] })
  return { tick: async (ms = 0) => void (await vi.advanceTimersByTimeAsync(ms)) }
}

/** A database of which every statement is faked elsewhere: it only passes them on. */
export const FAKED_DATABASE: Database = {
  query: (work) => work({} as Connection),
  transaction: (work) => work({} as Connection),
  lockThenWork: () => Promise.reject(new Error('this statement is not faked')),
  queuedMs: () => 0,
  close: async () => {},
}

/** What PostgreSQL says when the server goes down, and when a row is not what it has to be. */
export const away = (): Error => Object.assign(new Error('terminating connection'), { code: '57P01' })
export const refusal = (): Error => Object.assign(new Error('violates a check'), { code: '23514' })

export interface Noted {
  wakeUps: string[]
  calls: { type: string; durationMs: number; downstreamError: boolean }[]
  items: [type: string, ended: number, rejected: number][]
  retries: [type: string, repeated: number][]
  /** The messages of warnings and errors. */
  log: string[]
}

/** What a run works with, and what it told of it. */
export const notingContext = (objects: ObjectStore = NO_OBJECT_STORE): { context: RunContext; noted: Noted } => {
  const noted: Noted = { wakeUps: [], calls: [], items: [], retries: [], log: [] }
  const note = (_fields: object, message: string) => void noted.log.push(message)
  const log = { debug() {}, info() {}, warn: note, error: note, child: () => log } as unknown as Log
  const context: RunContext = {
    database: FAKED_DATABASE,
    wakeUps: {
      send: (kind) => void noted.wakeUps.push(kind),
      on: () => () => {},
      close: async () => {},
    },
    meter: {
      record: (call) => void noted.calls.push(call),
      items: (...items) => void noted.items.push(items),
      retries: (...retries) => void noted.retries.push(retries),
      stop: async () => {},
    },
    objects,
    log,
  }
  return { context, noted }
}

/** Notes the points of fault tests that a run comes by, each with what `stands` by then; until `ignorePoints`. */
export const notePoints = (stands: (subject: ProbeSubject) => unknown[]) => {
  const points: unknown[][] = []
  const operations = new Set<string | undefined>()
  installProbe(async (point, subject) => {
    operations.add(subject.operationId)
    points.push([point, ...stands(subject)])
  })
  return { points, operations }
}

export const ignorePoints = (): void => installProbe(async () => {})

/** Notes, in their order, what is told of the spans below a run: name, attributes, more of them, and how each ended. */
export const noteSpans = (held: HeldShard): unknown[] => {
  const told: unknown[] = []
  held.trace = (name, attributes) => {
    told.push(name, attributes)
    return { traceparent: 'span', set: (more) => told.push(more), end: (how) => told.push(how) }
  }
  return told
}
