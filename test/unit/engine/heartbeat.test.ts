import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Heartbeat, startHeartbeat, WORKER_BEAT_MS } from '../../../src/engine/heartbeat.ts'
import type { HeldShard } from '../../../src/engine/held-shard.ts'
import { acknowledgeStops, type RenewedLease, readLeases, renewLeases } from '../../../src/storage/run/heartbeat.ts'
import { beatWorker, type WorkerPresence } from '../../../src/storage/worker-presence.ts'
import { away, FAKED_DATABASE, holdShard, notingContext, useTestClock, WORKER_ID } from '../../support/held-run.ts'

vi.mock('../../../src/storage/run/heartbeat.ts', () => ({
  acknowledgeStops: vi.fn(),
  readLeases: vi.fn(),
  renewLeases: vi.fn(),
}))
vi.mock('../../../src/storage/worker-presence.ts', () => ({
  beatWorker: vi.fn(),
  readPausedTypes: vi.fn(),
  registerWorker: vi.fn(),
}))

const presence: WorkerPresence = { id: WORKER_ID, host: 'h', pid: 1, codeVersion: 'c', types: [], beatMs: 2_000 }
const LEASE_MS = 3_000 // a beat each second
const TYPE = { leaseMs: LEASE_MS, stallMs: 600_000 }

let tick: (ms?: number) => Promise<void>
let heartbeat: Heartbeat | null = null
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
  vi.mocked(beatWorker).mockResolvedValue()
  vi.mocked(acknowledgeStops).mockResolvedValue()
})
afterEach(async () => {
  await heartbeat?.stop()
  heartbeat = null
  vi.useRealTimers()
})

const answerFor = ({ lease }: HeldShard, stopRequested: RenewedLease['stopRequested'] = null): RenewedLease => ({
  operationId: lease.operationId,
  shard: lease.shard,
  epoch: lease.epoch,
  stopRequested,
})

const begin = (...shards: HeldShard[]) => {
  const { context, noted } = notingContext()
  const held = new Set(shards)
  const answered: boolean[] = []
  const onBeat = (was: boolean): void => void answered.push(was)
  const started = startHeartbeat({ control: FAKED_DATABASE, presence, held, onBeat, log: context.log })
  heartbeat = started
  const claim = (shard: HeldShard): void => {
    held.add(shard)
    started.claimed()
  }
  return { heartbeat: started, noted, claim, answered }
}
/** The database renews what it is asked for, and says that these are told to stop. */
const renewAll = (shards: HeldShard[], stop: RenewedLease['stopRequested'] = null) => {
  const all = async () => shards.map((shard) => answerFor(shard, stop))
  vi.mocked(renewLeases).mockImplementation(all)
  vi.mocked(readLeases).mockImplementation(all)
}

describe('a beat', () => {
  test('renews the leases of all shards, a third of the shortest one after the last beat', async () => {
    const [short, long] = [holdShard({ shard: 1 }, TYPE), holdShard({ shard: 2 }, { ...TYPE, leaseMs: 30_000 })]
    renewAll([short, long])
    begin(short, long)
    await tick(999)
    expect(renewLeases).not.toHaveBeenCalled()
    await tick(1)
    expect(vi.mocked(renewLeases).mock.calls.map(([, worker, leases]) => [worker, leases])).toEqual([
      [WORKER_ID, [short.lease, long.lease]],
    ])
    // from the instant before the renewal was asked for
    expect(short.leaseEndsMs).toBe(performance.now() + LEASE_MS - 300)
    expect(readLeases).not.toHaveBeenCalled()
    expect(acknowledgeStops).not.toHaveBeenCalled()
    await tick(1_000)
    expect(renewLeases).toHaveBeenCalledTimes(2)
  })

  test('counts a lease from before it was asked for, however late the answer is', async () => {
    const shard = holdShard({}, TYPE)
    vi.mocked(renewLeases).mockImplementation(async () => {
      await vi.advanceTimersByTimeAsync(400)
      return [answerFor(shard)]
    })
    begin(shard)
    await tick(1_000)
    expect(shard.leaseEndsMs).toBe(shard.heldSinceMs + 1_000 + LEASE_MS - 300)
  })

  test('comes every two seconds where nothing is held, and asks for nothing', async () => {
    begin()
    await tick(10_000)
    expect(renewLeases).not.toHaveBeenCalled()
    expect(beatWorker).toHaveBeenCalledTimes(5)
    expect(vi.mocked(beatWorker).mock.calls[0]?.slice(1)).toEqual([presence, 'active'])
  })

  test('says that the worker is alive every two seconds at most, however often leases are renewed', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard])
    const { heartbeat } = begin(shard)
    await tick(6_000)
    expect(renewLeases).toHaveBeenCalledTimes(6)
    // the first one at once, then each WORKER_BEAT_MS
    expect(beatWorker).toHaveBeenCalledTimes(3)
    expect(WORKER_BEAT_MS).toBe(2_000)
    heartbeat.state = 'draining'
    await tick(2_000)
    expect(vi.mocked(beatWorker).mock.calls.at(-1)?.[2]).toBe('draining')
  })

  test('of a shard that was just claimed does not wait for the next beat of a worker that had nothing, or longer leases', async () => {
    const [long, short] = [holdShard({ shard: 1 }, { ...TYPE, leaseMs: 30_000 }), holdShard({ shard: 2 }, TYPE)]
    renewAll([long, short])
    const { claim } = begin(long)
    await tick(100)
    claim(short)
    await tick(999)
    expect(renewLeases).not.toHaveBeenCalled()
    await tick(1)
    expect(renewLeases).toHaveBeenCalledTimes(1)
    expect([short.lost, short.leaseEndsMs]).toEqual([false, performance.now() + LEASE_MS - 300])
  })

  test('is not put off by claims, however many there are', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard])
    const { claim } = begin(shard)
    for (let claims = 0; claims < 20; claims++) {
      await tick(100)
      claim(shard)
    }
    expect(renewLeases).toHaveBeenCalledTimes(2)
  })

  test('that is under way plans the next one for what is claimed meanwhile', async () => {
    const shard = holdShard({}, TYPE)
    let answer = (): void => {}
    vi.mocked(beatWorker).mockReturnValueOnce(
      new Promise((resolve) => {
        answer = resolve
      }),
    )
    renewAll([shard])
    const { claim } = begin()
    await tick(2_000)
    claim(shard)
    await tick(500)
    answer()
    await tick(999)
    expect(renewLeases).not.toHaveBeenCalled()
    await tick(1)
    expect(renewLeases).toHaveBeenCalledTimes(1)
  })

  test('is never more often than ten times a second', async () => {
    const shard = holdShard({}, { ...TYPE, leaseMs: 30 })
    renewAll([shard])
    begin(shard)
    await tick(99)
    expect(renewLeases).not.toHaveBeenCalled()
    await tick(1)
    expect(renewLeases).toHaveBeenCalledTimes(1)
  })

  test.each([
    ['is lost', (shard: HeldShard) => Object.assign(shard, { lost: true })],
    ['is given back', (shard: HeldShard) => Object.assign(shard, { finishing: true })],
  ])('leaves out a shard that %s', async (_how, change) => {
    const shard = holdShard({}, TYPE)
    renewAll([shard])
    begin(shard)
    change(shard)
    await tick(1_000)
    expect(renewLeases).not.toHaveBeenCalled()
  })

  test('leaves out a shard whose run hangs, so that somebody else may have it', async () => {
    const shard = holdShard({}, { ...TYPE, stallMs: 1_500 })
    renewAll([shard])
    begin(shard)
    await tick(4_000)
    expect(renewLeases).toHaveBeenCalledTimes(1)
    shard.step()
    await tick(2_000)
    expect(vi.mocked(renewLeases).mock.calls.length).toBeGreaterThan(1)
  })

  test('that fails changes nothing, and the next one comes as usual', async () => {
    const shard = holdShard({}, TYPE)
    const endsMs = shard.leaseEndsMs
    vi.mocked(renewLeases).mockRejectedValueOnce(away())
    const { noted, answered } = begin(shard)
    await tick(1_000)
    expect([shard.leaseEndsMs, shard.lost, noted.log]).toEqual([endsMs, false, ['heartbeat failed']])
    renewAll([shard])
    await tick(1_000)
    expect(shard.leaseEndsMs).toBeGreaterThan(endsMs)
    expect(answered).toEqual([false, true])
  })

  test('whose other half fails still counts', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard])
    vi.mocked(beatWorker).mockRejectedValueOnce(away())
    const { noted } = begin(shard)
    const endsMs = shard.leaseEndsMs
    await tick(1_000)
    expect(noted.log).toEqual(['heartbeat failed'])
    expect(shard.leaseEndsMs).toBeGreaterThan(endsMs)
  })
})

describe('a stop', () => {
  test('closes the gate first, and is acknowledged then, by the name of what was seen', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard], 'cancel')
    const gates: boolean[] = []
    vi.mocked(acknowledgeStops).mockImplementation(async () => void gates.push(shard.mayGoOn))
    begin(shard)
    await tick(1_000)
    expect([shard.stop, gates]).toEqual(['cancel', [false]])
    expect(vi.mocked(acknowledgeStops).mock.calls.map(([, stops]) => stops)).toEqual([
      [{ ...shard.lease, stop: 'cancel' }],
    ])
    // its lease is renewed as before: what is in the air is awaited
    expect(shard.leaseEndsMs).toBe(performance.now() + LEASE_MS - 300)
  })

  test('that is taken back opens the gate', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard], 'pause')
    begin(shard)
    await tick(1_000)
    expect(shard.stop).toBe('pause')
    renewAll([shard])
    await tick(1_000)
    expect([shard.stop, shard.mayGoOn]).toEqual([null, true])
  })

  test('wakes the run once, and not with every beat', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard], 'pause')
    const stopped = vi.spyOn(shard, 'stopped')
    begin(shard)
    await tick(3_000)
    expect(stopped).toHaveBeenCalledTimes(1)
  })

  test('is seen at once where a wake-up says so, without a renewal', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard], 'pause')
    const { heartbeat } = begin(shard)
    heartbeat.look()
    await tick()
    expect(shard.stop).toBe('pause')
    expect(renewLeases).not.toHaveBeenCalled()
    expect(acknowledgeStops).toHaveBeenCalledTimes(1)
  })

  test('of one shard is not acknowledged for another one', async () => {
    const [one, other] = [holdShard({ shard: 1 }, TYPE), holdShard({ shard: 2 }, TYPE)]
    vi.mocked(renewLeases).mockImplementation(async () => [answerFor(one, 'pause'), answerFor(other)])
    begin(one, other)
    await tick(1_000)
    expect([one.stop, other.stop]).toEqual(['pause', null])
    expect(vi.mocked(acknowledgeStops).mock.calls[0]?.[1]).toEqual([{ ...one.lease, stop: 'pause' }])
  })

  test('of a shard that is being given back is not acknowledged: its finish says it', async () => {
    const shard = holdShard({}, TYPE)
    vi.mocked(renewLeases).mockImplementation(async () => {
      shard.finishing = true
      return [answerFor(shard, 'pause')]
    })
    begin(shard)
    await tick(1_000)
    expect(shard.stop).toBe('pause')
    expect(acknowledgeStops).not.toHaveBeenCalled()
  })
})

describe('a shard that a renewal did not name', () => {
  test('is read again: a row that was locked is still ours', async () => {
    const [named, locked] = [holdShard({ shard: 1 }, TYPE), holdShard({ shard: 2 }, TYPE)]
    const endsMs = locked.leaseEndsMs
    vi.mocked(renewLeases).mockImplementation(async () => [answerFor(named)])
    vi.mocked(readLeases).mockImplementation(async () => [answerFor(locked)])
    const { noted } = begin(named, locked)
    await tick(1_000)
    expect(vi.mocked(readLeases).mock.calls.map(([, leases]) => leases)).toEqual([[locked.lease]])
    expect([locked.lost, locked.leaseEndsMs, noted.log]).toEqual([false, endsMs, []])
    expect(named.leaseEndsMs).toBeGreaterThan(endsMs)
  })

  test.each([
    ['is lost', { lost: true, finishing: false }],
    ['is being given back', { lost: false, finishing: true }],
  ])('and %s brings no beat forward', async (_how, change) => {
    const [named, gone] = [holdShard({ shard: 1 }, TYPE), holdShard({ shard: 2 }, TYPE)]
    vi.mocked(renewLeases).mockImplementation(async () => [answerFor(named)])
    vi.mocked(readLeases).mockImplementation(async () => {
      Object.assign(gone, change)
      return []
    })
    begin(named, gone)
    await tick(1_999)
    expect(renewLeases).toHaveBeenCalledTimes(1)
    await tick(1)
    expect(vi.mocked(renewLeases).mock.calls.map(([, , leases]) => leases.length)).toEqual([2, 1])
  })

  test('is tried again soon: a run locks its own row often, and each time for milliseconds', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard])
    vi.mocked(renewLeases).mockResolvedValueOnce([])
    begin(shard)
    await tick(1_000)
    await tick(99)
    expect(renewLeases).toHaveBeenCalledTimes(1)
    await tick(1)
    expect(shard.leaseEndsMs).toBe(performance.now() + LEASE_MS - 300)
    // and then a third of its lease later again
    await tick(999)
    expect(renewLeases).toHaveBeenCalledTimes(2)
    await tick(1)
    expect(renewLeases).toHaveBeenCalledTimes(3)
  })

  test('is told to stop by that, too', async () => {
    const shard = holdShard({}, TYPE)
    vi.mocked(renewLeases).mockResolvedValue([])
    vi.mocked(readLeases).mockImplementation(async () => [answerFor(shard, 'cancel')])
    begin(shard)
    await tick(1_000)
    expect(shard.stop).toBe('cancel')
    expect(vi.mocked(acknowledgeStops).mock.calls[0]?.[1]).toEqual([{ ...shard.lease, stop: 'cancel' }])
  })

  test('is lost when it is not there either, and its run is woken', async () => {
    const shard = holdShard({}, TYPE)
    vi.mocked(renewLeases).mockResolvedValue([])
    vi.mocked(readLeases).mockResolvedValue([])
    const { noted } = begin(shard)
    const wake = vi.spyOn(shard, 'wake')
    await tick(1_000)
    expect([shard.lost, wake.mock.calls.length, noted.log]).toEqual([true, 1, ['lease lost']])
    expect(acknowledgeStops).not.toHaveBeenCalled()
  })

  test.each([
    { shard: 5, epoch: 3 },
    { shard: 0, epoch: 4 },
  ])('is lost when the answer is of another claim, %o', async (of) => {
    const shard = holdShard({}, TYPE)
    vi.mocked(renewLeases).mockResolvedValue([])
    vi.mocked(readLeases).mockResolvedValue([{ ...answerFor(shard), ...of }])
    begin(shard)
    await tick(1_000)
    expect(shard.lost).toBe(true)
  })

  test('and that its run gives back meanwhile is not lost: missing it means nothing', async () => {
    const shard = holdShard({}, TYPE)
    vi.mocked(renewLeases).mockResolvedValue([])
    vi.mocked(readLeases).mockImplementation(async () => {
      shard.finishing = true
      return []
    })
    const { noted } = begin(shard)
    await tick(1_000)
    expect([shard.lost, noted.log]).toEqual([false, []])
  })
})

describe('looking', () => {
  test('is one at a time; one that is asked for meanwhile follows', async () => {
    const shard = holdShard({}, TYPE)
    const answers: (() => void)[] = []
    vi.mocked(readLeases).mockImplementation(
      () => new Promise((resolve) => answers.push(() => resolve([answerFor(shard)]))),
    )
    const { heartbeat } = begin(shard)
    heartbeat.look()
    heartbeat.look()
    heartbeat.look()
    await tick()
    expect(answers).toHaveLength(1)
    answers[0]?.()
    await tick()
    expect(answers).toHaveLength(2)
    answers[1]?.()
    await tick()
    expect(answers).toHaveLength(2)
    heartbeat.look()
    await tick()
    expect(answers).toHaveLength(3)
    answers[2]?.()
  })

  test('asks for nothing where nothing is held, lost or given back', async () => {
    const [lost, finishing] = [holdShard({ shard: 1 }, TYPE), holdShard({ shard: 2 }, TYPE)]
    lost.lost = true
    finishing.finishing = true
    const { heartbeat } = begin(lost, finishing)
    heartbeat.look()
    await tick()
    expect(readLeases).not.toHaveBeenCalled()
  })

  test('that fails is told of, and the next look looks', async () => {
    const shard = holdShard({}, TYPE)
    renewAll([shard], 'pause')
    vi.mocked(readLeases).mockRejectedValueOnce(away())
    const { heartbeat, noted } = begin(shard)
    heartbeat.look()
    await tick()
    expect([shard.stop, noted.log]).toEqual([null, ['looking for stops failed']])
    heartbeat.look()
    await tick()
    expect(shard.stop).toBe('pause')
  })

  test('whose answer is older than a stop opens no gate', async () => {
    const shard = holdShard({}, TYPE)
    let answer = (): void => {}
    vi.mocked(readLeases).mockReturnValueOnce(
      new Promise((resolve) => {
        answer = () => resolve([answerFor(shard)])
      }),
    )
    const { heartbeat } = begin(shard)
    heartbeat.look()
    await tick(500)
    shard.stopped('pause')
    answer()
    await tick()
    expect(shard.stop).toBe('pause')
  })
})

describe('the end', () => {
  test('says that the worker is gone, after the last look, and nothing beats any more', async () => {
    const shard = holdShard({}, TYPE)
    let answer = (): void => {}
    vi.mocked(readLeases).mockReturnValueOnce(
      new Promise((resolve) => {
        answer = () => resolve([answerFor(shard)])
      }),
    )
    const { heartbeat } = begin(shard)
    heartbeat.look()
    const stopping = heartbeat.stop()
    await tick()
    expect(beatWorker).not.toHaveBeenCalled()
    answer()
    await stopping
    expect(vi.mocked(beatWorker).mock.calls.map(([, , state]) => state)).toEqual(['gone'])
    heartbeat.look()
    heartbeat.claimed()
    await tick(10_000)
    expect(renewLeases).not.toHaveBeenCalled()
    expect(readLeases).toHaveBeenCalledTimes(1)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('does not come after a beat that is under way, and is quiet without a database', async () => {
    const shard = holdShard({}, TYPE)
    let answer = (): void => {}
    vi.mocked(renewLeases).mockReturnValueOnce(
      new Promise((resolve) => {
        answer = () => resolve([answerFor(shard)])
      }),
    )
    const { heartbeat } = begin(shard)
    await tick(1_000)
    vi.mocked(beatWorker).mockRejectedValue(away())
    await heartbeat.stop()
    answer()
    await tick(10_000)
    expect(renewLeases).toHaveBeenCalledTimes(1)
    expect(vi.getTimerCount()).toBe(0)
  })
})
