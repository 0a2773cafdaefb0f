import { afterEach, beforeEach, describe, expect, it, test, vi } from 'vitest'
import type { Executor } from '../../../src/domain/operation-type.ts'
import { HeldShard } from '../../../src/engine/held-shard.ts'
import { claimedShard, holdShard as hold, useTestClock } from '../../support/held-run.ts'
import { plantedType } from '../../support/planted-operation.ts'

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

describe('the gate of a held shard', () => {
  it('is open until a stop is seen, and opens again with a resume', () => {
    const shard = hold()
    expect(shard.mayGoOn).toBe(true)
    shard.stopped('pause')
    expect(shard.mayGoOn).toBe(false)
    shard.notStopped(performance.now() + 1)
    expect(shard.mayGoOn).toBe(true)
  })

  it('is not opened by an answer that was asked for before the stop was seen', () => {
    const shard = hold()
    const askedAtMs = performance.now()
    shard.stopped('pause')
    shard.notStopped(askedAtMs)
    expect(shard.mayGoOn).toBe(false)
  })

  it('is never opened again after a cancel, and a cancel outlives a pause that is told later', () => {
    const shard = hold()
    shard.stopped('cancel')
    shard.stopped('pause')
    shard.notStopped(performance.now() + 1_000)
    expect([shard.stop, shard.mayGoOn]).toEqual(['cancel', false])
  })

  it('is closed while the type is switched off, and once the lease is over on our clock', () => {
    expect(hold({ switchedOff: true }).mayGoOn).toBe(false)
    const old = new HeldShard(claimedShard(), plantedType('grant'), performance.now() - 3_600_000)
    expect([old.isOver, old.mayGoOn]).toEqual([true, false])
  })

  it('is closed by a loss, which ends the lease too, and by a give-back, which does not', () => {
    const lost = hold()
    lost.lost = true
    expect([lost.isOver, lost.mayGoOn]).toEqual([true, false])
    const given = hold()
    given.giveBack = true
    expect([given.isOver, given.mayGoOn]).toEqual([false, false])
  })

  it('is closed from the start where the claim told of a stop', () => {
    expect(hold({ stopRequested: 'pause' }).mayGoOn).toBe(false)
  })

  it('is closed a margin before the lease ends, counted from before it was asked for, and open again once renewed', async () => {
    const shard = hold({}, { leaseMs: 20_000 })
    const askedAtMs = performance.now()
    expect([shard.heldSinceMs, shard.leaseEndsMs]).toEqual([askedAtMs, askedAtMs + 18_000])
    await tick(17_999)
    expect(shard.mayGoOn).toBe(true)
    await tick(1)
    expect(shard.mayGoOn).toBe(false)
    shard.renewed(performance.now() - 1_000)
    expect([shard.leaseEndsMs, shard.mayGoOn]).toEqual([askedAtMs + 35_000, true])
  })

  it('stays open when no stop stood, and is not opened by an answer asked for at the very instant of the stop', () => {
    const shard = hold()
    shard.notStopped(performance.now())
    expect(shard.mayGoOn).toBe(true)
    shard.stopped('pause')
    shard.notStopped(performance.now())
    expect(shard.stop).toBe('pause')
  })

  it('a pause that is told again counts from then on', async () => {
    const shard = hold()
    shard.stopped('pause')
    await tick(10)
    const askedAtMs = performance.now()
    await tick(10)
    shard.stopped('pause')
    shard.notStopped(askedAtMs)
    expect(shard.stop).toBe('pause')
  })
})

describe('a shard in hand', () => {
  test('is stalled once no step was passed for longer than the type allows', async () => {
    const shard = hold({}, { stallMs: 1_000 })
    await tick(1_000)
    expect(shard.isStalled).toBe(false)
    await tick(1)
    expect(shard.isStalled).toBe(true)
    shard.step()
    expect(shard.isStalled).toBe(false)
  })

  test('is isolated from the second claim without progress on, until that ends', () => {
    expect(hold({ claims: 1 }).isIsolated).toBe(false)
    const shard = hold({ claims: 2 })
    expect(shard.isIsolated).toBe(true)
    shard.endIsolation()
    expect(shard.isIsolated).toBe(false)
  })

  test('waits for a wake-up or for its time, whichever comes first, and leaves no timer behind', async () => {
    const shard = hold()
    const ended: string[] = []
    void shard.nextWake(1_000).then(() => ended.push('first'))
    void shard.nextWake(2_000).then(() => ended.push('second'))
    await tick(999)
    expect(ended).toEqual([])
    await tick(1)
    expect(ended).toEqual(['first'])
    shard.wake()
    await tick()
    expect(ended).toEqual(['first', 'second'])
    expect(vi.getTimerCount()).toBe(0)
  })

  test.each([
    ['a stop', (shard: HeldShard) => shard.stopped('pause')],
    ['a cancel', (shard: HeldShard) => shard.stopped('cancel')],
    [
      'a resume',
      (shard: HeldShard) => {
        shard.stopped('pause')
        vi.advanceTimersByTime(1)
        shard.notStopped(performance.now())
      },
    ],
  ])('%s wakes the run', async (_what, change) => {
    const shard = hold()
    let woken = false
    void shard.nextWake(60_000).then(() => {
      woken = true
    })
    change(shard)
    await tick()
    expect(woken).toBe(true)
  })

  test('undoes effects with the compensator of its type, for which the provider promised nothing', () => {
    const compensator: Executor = { kind: 'transactional', runBatch: async () => undefined }
    const type = { compensator, providerIdempotentMs: 5_000 }
    const undoing = hold({ compensating: true }, type)
    expect([undoing.executor, undoing.providerIdempotentMs]).toEqual([compensator, 0])
    expect(hold({}, type).providerIdempotentMs).toBe(5_000)
    expect(() => hold({ compensating: true })).toThrow('broken invariant')
  })
})
