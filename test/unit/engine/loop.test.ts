import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Executor, OperationType } from '../../../src/domain/operation-type.ts'
import { type Heartbeat, startHeartbeat } from '../../../src/engine/heartbeat.ts'
import type { HeldShard } from '../../../src/engine/held-shard.ts'
import { type Engine, type EngineOptions, startEngine } from '../../../src/engine/loop.ts'
import { runShard } from '../../../src/engine/run.ts'
import {
  claimExpiredShards,
  claimReadyShards,
  othersWait,
  type ReadyClaim,
} from '../../../src/storage/run/claim-shards.ts'
import { endLease } from '../../../src/storage/run/end-lease.ts'
import type { ClaimedShard } from '../../../src/storage/run/lease.ts'
import type { WakeUp } from '../../../src/storage/wake-ups.ts'
import { readPausedTypes, registerWorker, type WorkerPresence } from '../../../src/storage/worker-presence.ts'
import { NO_SPAN } from '../../../src/tracing.ts'
import { away, claimedShard, FAKED_DATABASE, notingContext, useTestClock, WORKER_ID } from '../../support/held-run.ts'
import { plantedType } from '../../support/planted-operation.ts'

vi.mock('../../../src/engine/heartbeat.ts', () => ({ startHeartbeat: vi.fn() }))
vi.mock('../../../src/engine/run.ts', () => ({ runShard: vi.fn() }))
vi.mock('../../../src/storage/run/claim-shards.ts', () => ({
  claimExpiredShards: vi.fn(),
  claimReadyShards: vi.fn(),
  LAST_TENANT: 1_000,
  othersWait: vi.fn(),
}))
vi.mock('../../../src/storage/run/end-lease.ts', () => ({ endLease: vi.fn() }))
vi.mock('../../../src/storage/worker-presence.ts', () => ({
  beatWorker: vi.fn(),
  readPausedTypes: vi.fn(),
  registerWorker: vi.fn(),
}))

const presence: WorkerPresence = { id: WORKER_ID, host: 'h', pid: 1, codeVersion: 'c', types: [], beatMs: 2_000 }
const TRANSACTIONAL: Executor = { kind: 'transactional', runBatch: async () => undefined }
const GRANT = plantedType('grant', { leaseMs: 600_000, stallMs: 5_000 })

let tick: (ms?: number) => Promise<void>
let draining: (() => Promise<void>) | null = null
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(async () => {
  await draining?.()
  draining = null
  vi.useRealTimers()
})

/** A run in hand: it ends when the test says so, or gives its shard back when it is told to. */
interface Run {
  held: HeldShard
  end(dueInMs?: number | null): void
  fail(error: Error): void
}

/** A worker whose claims find what the test puts into `ready` and `expired`, and whose runs last until the test ends them. */
const start = async ({
  concurrency = 3,
  types = [GRANT],
  ...more
}: { concurrency?: number; types?: OperationType[] } & Pick<EngineOptions, 'ended' | 'tracing'> = {}) => {
  const { context, noted } = notingContext()
  const ready: ClaimedShard[] = []
  const expired: ClaimedShard[] = []
  const runs: Run[] = []
  const listeners = new Map<WakeUp, () => void>()
  const off: WakeUp[] = []
  const heartbeat = {
    look: vi.fn(),
    claimed: vi.fn(),
    state: 'active' as Heartbeat['state'],
    stop: vi.fn(async () => {}),
  }
  let held: ReadonlySet<HeldShard> = new Set()
  let beat: () => void = () => {}
  vi.mocked(startHeartbeat).mockImplementation((options) => {
    held = options.held
    beat = () => options.onBeat(true)
    return heartbeat
  })
  vi.mocked(claimReadyShards).mockImplementation(async (_connection, turn) => {
    const { limit, perTenant, afterTenant, lastTenant = 0 } = turn
    const claimed: ClaimedShard[] = []
    for (const lease of [...ready].sort((a, b) => a.tenantId - b.tenantId)) {
      if (lease.tenantId <= afterTenant || lease.tenantId > lastTenant || claimed.length === limit) continue
      if (claimed.filter(({ tenantId }) => tenantId === lease.tenantId).length === perTenant) continue
      claimed.push(lease)
      ready.splice(ready.indexOf(lease), 1)
    }
    return { shards: claimed, behind: claimed.length === limit ? (claimed.at(-1)?.tenantId ?? null) : null }
  })
  vi.mocked(claimExpiredShards).mockImplementation(async (_connection, { limit }) => expired.splice(0, limit))
  vi.mocked(othersWait).mockResolvedValue(false)
  vi.mocked(readPausedTypes).mockResolvedValue(new Set())
  vi.mocked(runShard).mockImplementation(
    (_context, shard) =>
      new Promise((resolve, reject) => {
        runs.push({ held: shard, end: (dueInMs = null) => resolve(dueInMs), fail: reject })
      }),
  )
  const engine: Engine = await startEngine({
    database: FAKED_DATABASE,
    control: FAKED_DATABASE,
    types,
    wakeUps: {
      send: () => {},
      on: (kind, listener) => {
        listeners.set(kind, listener)
        return () => void off.push(kind)
      },
      close: async () => {},
    },
    meter: context.meter,
    objects: context.objects,
    presence,
    concurrency,
    log: context.log,
    ...more,
  })
  draining = async () => {
    const drained = engine.drain()
    for (let n = 0; n < 10; n++) {
      for (const run of runs) run.end()
      await tick()
    }
    await drained
  }
  await tick()
  const now = { held: () => [...held], beat: () => beat() }
  return { engine, ready, expired, runs, listeners, off, heartbeat, context, noted, ...now }
}
const shard = (n: number, over: Partial<ClaimedShard> = {}): ClaimedShard =>
  claimedShard({ shard: n, tenantId: 1, ...over })
const shardsOf = (runs: readonly Run[]): number[] => runs.map(({ held }) => held.lease.shard)
const claimsSince = (calls: number) =>
  vi
    .mocked(claimReadyShards)
    .mock.calls.slice(calls)
    .map(([, claim]) => claim)

describe('a worker', () => {
  test('registers before anything else, however long the database is away', async () => {
    vi.mocked(registerWorker).mockRejectedValueOnce(away()).mockRejectedValueOnce(away())
    const starting = start()
    await tick(499)
    expect([vi.mocked(registerWorker).mock.calls.length, vi.mocked(startHeartbeat).mock.calls.length]).toEqual([1, 0])
    await tick(501)
    const worker = await starting
    expect(registerWorker).toHaveBeenCalledTimes(3)
    expect(vi.mocked(registerWorker).mock.calls[0]?.[1]).toBe(presence)
    expect(worker.noted.log).toEqual(Array(2).fill('the database is not there yet'))
  })

  test('claims shards of its types, and says what it can do with them', async () => {
    const types = [
      plantedType('grant', { version: 4, leaseMs: 9_000, concurrency: 7, compensator: GRANT.executor }),
      plantedType('import', { executor: TRANSACTIONAL, batch: { maxItems: 250, maxMs: 1 } }),
    ]
    await start({ types })
    const claim = {
      workerId: WORKER_ID,
      types: [
        { name: 'grant', version: 4, leaseMs: 9_000, windowMax: 7, compensates: true, codeVersion: 'c1' },
        { name: 'import', version: 1, leaseMs: 30_000, windowMax: 250, compensates: false, codeVersion: 'c1' },
      ],
      limit: 3,
    }
    expect(vi.mocked(claimExpiredShards).mock.calls[0]?.[1]).toEqual(claim)
    expect(claimsSince(0)).toEqual([{ ...claim, perTenant: 1, afterTenant: 0, lastTenant: 1_000 }])
  })

  test('claims nothing of types whose items are sent by workers elsewhere', async () => {
    const executor = { ...GRANT.executor, remote: true } as Executor
    const worker = await start({ types: [GRANT, plantedType('elsewhere', { executor })] })
    expect(claimsSince(0).map(({ types }) => types.map(({ name }) => name))).toEqual([['grant']])
    worker.ready.push(shard(0, { type: 'elsewhere' }))
    await tick(1_000)
    expect(worker.runs).toEqual([])
  })

  test('gives its runs what they work with: whom to tell of ends, and who traces, if anybody does', async () => {
    const told = { ended: vi.fn(), tracing: { start: () => NO_SPAN, close: async () => {} } }
    const contexts = []
    for (const more of [{}, told]) {
      const worker = await start(more)
      worker.ready.push(shard(0))
      await tick(1_000)
      const { meter, objects, log } = worker.context
      const wakeUps = expect.objectContaining({ send: expect.any(Function) })
      contexts.push({ database: FAKED_DATABASE, wakeUps, meter, objects, log, ...more })
      await draining?.()
    }
    expect(vi.mocked(runShard).mock.calls.map(([context]) => context)).toEqual(contexts)
  })

  test('tells its heartbeat of what it has claimed, taken over or not, once it is held', async () => {
    const worker = await start()
    expect(worker.heartbeat.claimed).not.toHaveBeenCalled()
    const held: number[] = []
    worker.heartbeat.claimed.mockImplementation(() => held.push(worker.held().length))
    worker.ready.push(shard(0))
    worker.expired.push(shard(1))
    await tick(1_000)
    expect(held).toEqual([1, 2])
  })

  test('runs as many shards as it has room for, and the next one when one has ended', async () => {
    const worker = await start({ concurrency: 2 })
    worker.ready.push(shard(0), shard(1), shard(2))
    worker.listeners.get('work')?.()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    expect(worker.held().map(({ lease }) => lease.shard)).toEqual([0, 1])
    worker.runs[0]?.end()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1, 2])
    expect(worker.held().map(({ lease }) => lease.shard)).toEqual([1, 2])
  })

  test('asks for no more than it has room for', async () => {
    const worker = await start({ concurrency: 2 })
    worker.ready.push(shard(0))
    worker.listeners.get('work')?.()
    await tick()
    const calls = vi.mocked(claimReadyShards).mock.calls.length
    worker.listeners.get('work')?.()
    await tick()
    expect(claimsSince(calls).map(({ limit }) => limit)).toEqual([1])
    worker.ready.push(shard(1))
    worker.listeners.get('work')?.()
    await tick()
    const full = vi.mocked(claimReadyShards).mock.calls.length
    const takeovers = vi.mocked(claimExpiredShards).mock.calls.length
    worker.listeners.get('work')?.()
    await tick(2_000)
    expect(claimsSince(full)).toEqual([])
    expect(claimExpiredShards).toHaveBeenCalledTimes(takeovers)
  })

  test('counts a lease from before it was asked for', async () => {
    const worker = await start()
    const askedAtMs = performance.now()
    vi.mocked(claimReadyShards).mockImplementationOnce(async () => {
      vi.advanceTimersByTime(300)
      return { shards: [shard(0)], behind: null }
    })
    worker.listeners.get('work')?.()
    await tick()
    expect(worker.runs[0]?.held.heldSinceMs).toBe(askedAtMs)
  })

  test('leaves a shard alone whose type it does not have', async () => {
    const worker = await start()
    worker.ready.push(shard(0, { type: 'unknown' }), shard(1))
    worker.listeners.get('work')?.()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([1])
  })

  test('goes on after a run that ended in an error: its lease runs out, and a takeover explains it', async () => {
    const worker = await start({ concurrency: 1 })
    worker.ready.push(shard(0), shard(1))
    worker.listeners.get('work')?.()
    await tick()
    worker.runs[0]?.fail(new Error('a bug'))
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    expect(worker.noted.log).toEqual(['a run ended in an error'])
  })

  test('holds a shard whose run ended in a fault until its lease is ended, and looks for it when it is due', async () => {
    const worker = await start({ concurrency: 1 })
    let ended = (_answer: boolean): void => {}
    vi.mocked(endLease).mockReturnValueOnce(
      new Promise((resolve) => {
        ended = resolve
      }),
    )
    worker.ready.push(shard(0), shard(1))
    worker.listeners.get('work')?.()
    await tick()
    worker.runs[0]?.fail(away())
    await tick()
    expect([shardsOf(worker.runs), worker.held().map(({ lease }) => lease.shard)]).toEqual([[0], [0]])
    ended(true)
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    worker.runs[1]?.end()
    await tick(499)
    worker.expired.push(shard(0, { epoch: 4 }))
    await tick(1)
    expect(shardsOf(worker.runs)).toEqual([0, 1, 0])
  })

  test('goes on after a claim that failed', async () => {
    const worker = await start()
    vi.mocked(claimReadyShards).mockRejectedValueOnce(away())
    worker.ready.push(shard(0))
    worker.listeners.get('work')?.()
    await tick()
    expect([worker.noted.log, worker.runs]).toEqual([['claiming shards failed'], []])
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0])
  })
})

describe('what is due is found', () => {
  test('by a poll each second, when nothing else tells', async () => {
    const worker = await start()
    worker.ready.push(shard(0))
    await tick(999)
    expect(worker.runs).toEqual([])
    await tick(1)
    expect(shardsOf(worker.runs)).toEqual([0])
  })

  test('when a shard of its own is due again, at its time', async () => {
    const worker = await start()
    worker.ready.push(shard(0))
    await tick(1_000)
    worker.runs[0]?.end(400)
    await tick()
    worker.ready.push(shard(0, { epoch: 4 }))
    await tick(399)
    expect(worker.runs).toHaveLength(1)
    await tick(1)
    expect(worker.runs).toHaveLength(2)
  })

  test('and a time that no timer can hold does not come at once', async () => {
    const worker = await start()
    worker.ready.push(shard(0))
    await tick(1_000)
    worker.runs[0]?.end(2 ** 33)
    await tick()
    const calls = vi.mocked(claimReadyShards).mock.calls.length
    await tick(100)
    expect(claimsSince(calls)).toEqual([])
  })

  test('when its lease has run out elsewhere: looked for twice a second at most, before what is ready', async () => {
    const worker = await start()
    expect(claimExpiredShards).toHaveBeenCalledTimes(1)
    worker.expired.push(shard(5))
    worker.listeners.get('work')?.()
    await tick(499)
    worker.listeners.get('work')?.()
    await tick()
    expect(claimExpiredShards).toHaveBeenCalledTimes(1)
    await tick(1)
    worker.ready.push(shard(0))
    worker.listeners.get('work')?.()
    await tick()
    expect(claimExpiredShards).toHaveBeenCalledTimes(2)
    expect(shardsOf(worker.runs)).toEqual([5, 0])
  })

  test('a wake-up while it claims is not lost', async () => {
    const worker = await start()
    vi.mocked(claimReadyShards).mockImplementationOnce(async () => {
      worker.listeners.get('work')?.()
      return { shards: [], behind: null }
    })
    const calls = vi.mocked(claimReadyShards).mock.calls.length
    worker.listeners.get('work')?.()
    await tick()
    expect(claimsSince(calls).length).toBe(2)
    await tick(500)
    expect(claimsSince(calls).length).toBe(2)
  })

  test('a stop is looked for when a wake-up says so', async () => {
    const worker = await start()
    worker.listeners.get('stop')?.()
    expect(worker.heartbeat.look).toHaveBeenCalledTimes(1)
  })
})

describe('tenants', () => {
  test('have one shard each before one of them has more, and the turn goes on behind the last one', async () => {
    const worker = await start({ concurrency: 4 })
    worker.ready.push(shard(0), shard(1), shard(2), shard(3, { tenantId: 2 }))
    worker.listeners.get('work')?.()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 3, 1, 2])
  })

  test('behind the one that was served last come first, and after them those before it', async () => {
    const worker = await start({ concurrency: 2 })
    worker.ready.push(shard(0), shard(1, { tenantId: 2 }), shard(2, { tenantId: 3 }), shard(3))
    worker.listeners.get('work')?.()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    for (const run of worker.runs) run.end()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1, 2, 3])
    const turns = vi.mocked(claimReadyShards).mock.calls.map(([, { afterTenant }]) => afterTenant)
    expect(turns).toContain(2)
  })

  test('begin with the first one again where not all places could be filled', async () => {
    const worker = await start()
    worker.ready.push(shard(0, { tenantId: 5 }))
    const calls = vi.mocked(claimReadyShards).mock.calls.length
    worker.listeners.get('work')?.()
    await tick()
    expect(claimsSince(calls).map(({ limit, afterTenant }) => [limit, afterTenant])).toEqual([
      [3, 0],
      [2, 0],
    ])
  })

  test('go on behind the last one of several', async () => {
    const worker = await start()
    worker.ready.push(...[1, 2, 3].map((tenantId) => shard(tenantId, { tenantId })))
    worker.listeners.get('work')?.()
    await tick()
    const calls = vi.mocked(claimReadyShards).mock.calls.length
    worker.runs[0]?.end()
    await tick()
    expect(claimsSince(calls)[0]).toMatchObject({ limit: 1, afterTenant: 3 })
  })

  test('that come before it do not wait for a poll when none is behind it', async () => {
    const worker = await start({ concurrency: 1 })
    worker.ready.push(shard(0, { tenantId: 5 }))
    worker.listeners.get('work')?.()
    await tick()
    worker.ready.push(shard(1, { tenantId: 2 }))
    worker.runs[0]?.end()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
  })
})

describe('isolation', () => {
  const suspect = (n: number): ClaimedShard => shard(n, { claims: 2, isolateUntil: 4 })

  test('a shard that lost a worker runs alone: others are given back first, and none is claimed', async () => {
    const worker = await start()
    worker.ready.push(shard(0))
    worker.listeners.get('work')?.()
    await tick()
    const wake = vi.spyOn(worker.runs[0]?.held as HeldShard, 'wake')
    worker.expired.push(suspect(1))
    await tick(500)
    worker.listeners.get('work')?.()
    await tick()
    expect([shardsOf(worker.runs), worker.runs[0]?.held.giveBack, wake.mock.calls.length]).toEqual([[0], true, 1])
    worker.ready.push(shard(2))
    worker.runs[0]?.end()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    await tick(3_000)
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    // once its suspects are behind it, there is room beside it again
    worker.runs[1]?.held.endIsolation()
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0, 1, 2])
  })

  test('several run one by one, and waiting for their turn is no stall', async () => {
    const worker = await start()
    worker.expired.push(suspect(0), suspect(1))
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0])
    await tick(6_000)
    const second = worker.held().find(({ lease }) => lease.shard === 1)
    expect([second?.isStalled, second?.giveBack, worker.runs[0]?.held.giveBack]).toEqual([false, false, false])
    worker.runs[0]?.end()
    await tick()
    expect(shardsOf(worker.runs)).toEqual([0, 1])
  })

  test('nothing is taken over beside it either', async () => {
    const worker = await start()
    worker.expired.push(suspect(0))
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0])
    worker.expired.push(shard(1))
    await tick(3_000)
    expect(worker.held().map(({ lease }) => lease.shard)).toEqual([0])
    worker.runs[0]?.held.endIsolation()
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0, 1])
  })

  test('a suspect that a takeover finds stops the claim of others in the same turn', async () => {
    const worker = await start()
    worker.expired.push(suspect(0))
    worker.ready.push(shard(1))
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0])
  })
})

describe('turns', () => {
  /** A worker that is full with two shards since its start. */
  const full = async () => {
    const worker = await start({ concurrency: 2 })
    worker.ready.push(shard(0), shard(1))
    worker.listeners.get('work')?.()
    await tick()
    return worker
  }
  const given = (runs: readonly Run[]): boolean[] => runs.map(({ held }) => held.giveBack)

  test('a shard is given back after ten seconds when others wait', async () => {
    const worker = await full()
    vi.mocked(othersWait).mockResolvedValue(true)
    await tick(10_000)
    expect([given(worker.runs), vi.mocked(othersWait).mock.calls.length]).toEqual([[false, false], 0])
    const wake = vi.spyOn(worker.runs[1]?.held as HeldShard, 'wake')
    await tick(1_000)
    expect([given(worker.runs), wake.mock.calls.length]).toEqual([[true, true], 1])
    expect(vi.mocked(othersWait).mock.calls[0]?.[1]).toEqual([
      { name: 'grant', version: 1, leaseMs: 600_000, windowMax: 16, compensates: false, codeVersion: 'c1' },
    ])
    // they are told once
    await tick(3_000)
    expect([wake.mock.calls.length, vi.mocked(othersWait).mock.calls.length]).toEqual([1, 1])
  })

  test('the ten seconds are those of the shard, and not of the worker', async () => {
    await tick(60_000)
    const worker = await full()
    vi.mocked(othersWait).mockResolvedValue(true)
    await tick(10_000)
    expect(given(worker.runs)).toEqual([false, false])
    await tick(1_000)
    expect(given(worker.runs)).toEqual([true, true])
  })

  test('and not when nobody waits', async () => {
    const worker = await full()
    await tick(15_000)
    expect(given(worker.runs)).toEqual([false, false])
    expect(othersWait).toHaveBeenCalled()
  })

  test('and not while there is room for others', async () => {
    const worker = await full()
    vi.mocked(othersWait).mockResolvedValue(true)
    worker.runs[1]?.end()
    await tick(15_000)
    expect(given(worker.runs)).toEqual([false, false])
    expect(othersWait).not.toHaveBeenCalled()
  })

  test('and not while it runs isolated', async () => {
    const worker = await start({ concurrency: 1 })
    worker.expired.push(shard(0, { claims: 2, isolateUntil: 4 }))
    await tick(1_000)
    vi.mocked(othersWait).mockResolvedValue(true)
    await tick(15_000)
    expect(given(worker.runs)).toEqual([false])
  })

  test('a shard whose type is switched off is given back at once', async () => {
    const worker = await start({ types: [GRANT, plantedType('import', { leaseMs: 600_000 })] })
    worker.ready.push(shard(0), shard(1, { type: 'import' }))
    worker.listeners.get('work')?.()
    await tick()
    const wake = vi.spyOn(worker.runs[1]?.held as HeldShard, 'wake')
    vi.mocked(readPausedTypes).mockResolvedValue(new Set(['import']))
    await tick(1_000)
    expect([given(worker.runs), wake.mock.calls.length]).toEqual([[false, true], 1])
  })

  test('are not looked at where nothing is held', async () => {
    await start()
    await tick(5_000)
    expect(readPausedTypes).not.toHaveBeenCalled()
  })

  test('are looked at one at a time, also when the database is slow, and again after a look that failed', async () => {
    const worker = await full()
    let fail = (): void => {}
    vi.mocked(readPausedTypes).mockReturnValueOnce(
      new Promise((_resolve, reject) => {
        fail = () => reject(away())
      }),
    )
    await tick(5_000)
    expect(readPausedTypes).toHaveBeenCalledTimes(1)
    fail()
    await tick(1_000)
    expect(readPausedTypes).toHaveBeenCalledTimes(2)
    expect(worker.noted.log).toEqual(['looking who waits failed'])
  })
})

describe('a drain', () => {
  test('claims nothing any more, gives every shard back, and ends when the last run has', async () => {
    const worker = await start()
    worker.ready.push(shard(0), shard(1))
    worker.listeners.get('work')?.()
    await tick()
    const wakes = worker.runs.map(({ held }) => vi.spyOn(held, 'wake'))
    let drained = false
    // a takeover is due, too
    await tick(500)
    worker.ready.push(shard(2))
    worker.expired.push(shard(3))
    void worker.engine.drain().then(() => {
      drained = true
    })
    await tick()
    expect(worker.runs.map(({ held }) => held.giveBack)).toEqual([true, true])
    expect(wakes.map(({ mock }) => mock.calls.length)).toEqual([1, 1])
    expect([worker.heartbeat.state, worker.heartbeat.stop.mock.calls.length]).toEqual(['draining', 0])
    expect(worker.off.sort()).toEqual(['stop', 'work'])
    worker.runs[0]?.end(5_000)
    await tick(2_000)
    // heartbeats go on until the last batch is written
    expect([drained, worker.heartbeat.stop.mock.calls.length]).toEqual([false, 0])
    worker.runs[1]?.end()
    await tick()
    expect([drained, worker.heartbeat.stop.mock.calls.length]).toEqual([true, 1])
    expect(shardsOf(worker.runs)).toEqual([0, 1])
    expect(vi.getTimerCount()).toBe(0)
    draining = null
  })

  test('that comes during a claim gives back what that still brings, and takes no second turn', async () => {
    const worker = await start()
    let answer = (_claimed: ReadyClaim): void => {}
    vi.mocked(claimReadyShards).mockReturnValueOnce(
      new Promise((resolve) => {
        answer = resolve
      }),
    )
    worker.listeners.get('work')?.()
    await tick()
    const calls = vi.mocked(claimReadyShards).mock.calls.length
    void worker.engine.drain()
    await tick()
    answer({ shards: [shard(0)], behind: null })
    await tick()
    expect(worker.runs.map(({ held }) => held.giveBack)).toEqual([true])
    expect(claimsSince(calls)).toEqual([])
  })

  test('hands on the suspects that waited for their turn, too', async () => {
    const worker = await start()
    worker.expired.push(
      shard(0, { claims: 2, isolateUntil: 4 }),
      shard(1, { claims: 2, isolateUntil: 4 }),
      shard(2, { claims: 2, isolateUntil: 4 }),
    )
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0])
    void worker.engine.drain()
    await tick()
    expect(worker.runs.map(({ held }) => [held.lease.shard, held.giveBack])).toEqual([
      [0, true],
      [1, true],
      [2, true],
    ])
  })

  test('waits a second, and no longer, for the lease of a run that ended in a fault', async () => {
    const worker = await start()
    let ended = (_answer: boolean): void => {}
    vi.mocked(endLease).mockReturnValue(
      new Promise((resolve) => {
        ended = resolve
      }),
    )
    worker.ready.push(shard(0))
    worker.listeners.get('work')?.()
    await tick()
    let drained = false
    void worker.engine.drain().then(() => {
      drained = true
    })
    worker.runs[0]?.fail(away())
    await tick(999)
    expect([drained, worker.heartbeat.stop.mock.calls.length]).toEqual([false, 0])
    await tick(1)
    expect(drained).toBe(true)
    expect(vi.getTimerCount()).toBe(0)
    // an answer that comes after the end is of no interest any more
    ended(true)
    await tick()
    expect(vi.getTimerCount()).toBe(0)
    draining = null
  })

  test('looks at no turns any more', async () => {
    const worker = await start()
    worker.ready.push(shard(0))
    worker.listeners.get('work')?.()
    await tick()
    void worker.engine.drain()
    await tick(5_000)
    expect(readPausedTypes).not.toHaveBeenCalled()
  })
})

describe('whether a worker gets anywhere', () => {
  /** Of GRANT: stalled for a minute beyond its 5 s. Its lease is over before. */
  const HUNG_MS = 66_000
  const SHORT = plantedType('grant', { leaseMs: 3_000, stallMs: 5_000 })
  const pass = async (worker: Awaited<ReturnType<typeof start>>, ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 1_000) {
      await tick(1_000)
      worker.beat()
    }
  }

  test('is told by its places: when all of them hang, it does not', async () => {
    const worker = await start({ concurrency: 2, types: [SHORT] })
    worker.ready.push(shard(0), shard(1))
    worker.listeners.get('work')?.()
    await tick()
    await pass(worker, HUNG_MS)
    expect(worker.engine.stuck()).toBe('every run in hand lost its lease and hangs')
    worker.runs[0]?.end()
    await tick()
    expect(worker.engine.stuck()).toBeNull()
  })

  test('one that hangs alone keeps everything else out', async () => {
    const worker = await start({ concurrency: 3, types: [SHORT] })
    worker.expired.push(shard(0, { claims: 2 }), shard(1, { claims: 2 }))
    await tick(1_000)
    expect(shardsOf(worker.runs)).toEqual([0])
    await pass(worker, HUNG_MS)
    expect(worker.engine.stuck()).toBe('every run in hand lost its lease and hangs')
    // its drain has a limit of its own
    void worker.engine.drain()
    expect(worker.engine.stuck()).toBeNull()
  })

  test('a claim that never comes back, and beats that never do', async () => {
    const worker = await start()
    await tick(181_000)
    expect(worker.engine.stuck()).toBe('no heartbeat came to an end')
    worker.beat()
    expect(worker.engine.stuck()).toBeNull()
    vi.mocked(claimReadyShards).mockReturnValue(new Promise(() => {}))
    await pass(worker, 183_000)
    expect(worker.engine.stuck()).toBe('nothing was claimed or looked for')
    draining = null
  })
})
