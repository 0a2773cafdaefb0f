import { describe, expect, it } from 'vitest'
import { HeldShard } from '../../src/engine/held-shard.ts'
import { plantedType } from '../support/planted-operation.ts'

const lease = {
  tenantId: 1,
  operationId: '01a227d2-35e5-75d9-9237-76292d086ea0',
  shard: 0,
  workerId: '5f6c2c1e-7e0f-4c8e-9a53-0c6a9f2a7a11',
  epoch: 3,
  type: 'grant',
  fromOrd: 0,
  toOrd: 10,
  cursor: 0,
  steps: [],
  claims: 1,
  isolateUntil: null,
  stopRequested: null,
  switchedOff: false,
  compensating: false,
  doubt: null,
}
const hold = (over: Partial<typeof lease> = {}) =>
  new HeldShard({ ...lease, ...over }, plantedType('grant'), performance.now())

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
    const old = new HeldShard(lease, plantedType('grant'), performance.now() - 3_600_000)
    expect([old.isOver, old.mayGoOn]).toEqual([true, false])
  })
})
