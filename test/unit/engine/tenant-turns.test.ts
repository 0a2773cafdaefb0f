import { expect, test } from 'vitest'
import { openTenantTurns, type Stretch } from '../../../src/engine/tenant-turns.ts'
import { LAST_TENANT } from '../../../src/storage/run/claim-shards.ts'
import { claimedShard } from '../../support/held-run.ts'

/** Tenants looked at in one claim. */
const LOOKED_AT = 3

/** Tenants with so many shards that are due, and turns over them of a worker that has so much room at first. */
const open = (due: Map<number, number>, room: number) => {
  const asked: Stretch[] = []
  const taken: number[] = []
  const turns = openTenantTurns({
    claim: async (stretch) => {
      asked.push(stretch)
      const seen = [...due.keys()]
        .sort((a, b) => a - b)
        .filter((id) => id > stretch.afterTenant && id <= stretch.lastTenant)
        .slice(0, LOOKED_AT)
      const shards: number[] = []
      for (const id of seen) {
        const count = Math.min(stretch.perTenant, due.get(id) ?? 0, stretch.limit - shards.length)
        due.set(id, (due.get(id) ?? 0) - count)
        shards.push(...Array<number>(count).fill(id))
      }
      const full = shards.length === stretch.limit
      const behind = full ? shards.at(-1) : seen.length === LOOKED_AT ? seen.at(-1) : undefined
      return { shards: shards.map((tenantId) => claimedShard({ tenantId })), behind: behind ?? null }
    },
    adopt: (shards) => void taken.push(...shards.map(({ tenantId }) => tenantId)),
    room: () => room - taken.length,
  })
  const asks = () => asked.splice(0).map(({ afterTenant, lastTenant, limit }) => [afterTenant, lastTenant, limit])
  return { turns, taken, asks }
}
const each = (ids: readonly number[], shards: number): [number, number][] => ids.map((id) => [id, shards])

test('goes on behind those that it has looked at, until nobody is left', async () => {
  const { turns, taken, asks } = open(new Map([...each([1, 2, 3, 4, 5, 6], 0), [7, 1]]), 2)
  expect(await turns.take(1)).toBe(1)
  expect(taken).toEqual([7])
  expect(asks()).toEqual([
    [0, LAST_TENANT, 2],
    [3, LAST_TENANT, 2],
    [6, LAST_TENANT, 2],
  ])
})

test('stops where its places are taken, and the next turn begins there, and comes around', async () => {
  const due = new Map(each([1, 2, 3, 4], 1))
  const { turns, taken, asks } = open(due, 2)
  expect(await turns.take(1)).toBe(2)
  expect(taken.splice(0)).toEqual([1, 2])
  expect(asks()).toEqual([[0, LAST_TENANT, 2]])
  due.set(1, 1)
  due.delete(4)
  expect(await turns.take(1)).toBe(2)
  expect(taken.splice(0)).toEqual([3, 1])
  expect(asks()).toEqual([
    [2, LAST_TENANT, 2],
    [0, 2, 1],
  ])
})

test('asks for nothing where there is no room', async () => {
  const { turns, asks } = open(new Map([[1, 1]]), 0)
  expect(await turns.take(1)).toBe(0)
  expect(asks()).toEqual([])
})

test('begins with the first tenant after a turn that came around', async () => {
  const due = new Map(each([1, 2], 1))
  const { turns, taken, asks } = open(due, 2)
  await turns.take(1)
  taken.splice(0)
  asks()
  expect(await turns.take(2)).toBe(0)
  expect(asks()).toEqual([
    [2, LAST_TENANT, 2],
    [0, 2, 2],
  ])
  expect(await turns.take(2)).toBe(0)
  expect(asks()).toEqual([[0, LAST_TENANT, 2]])
})
