import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit } from '../support/processes.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet, type WorkerProcess } from '../support/worker-process.ts'

const CONCURRENCY = 4

let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
const file = writeTypeFile([
  grantType('grant', { concurrency: CONCURRENCY, parallelism: 2 }),
  grantType('grant-looked-up', { concurrency: CONCURRENCY }, { lookup: grantLookup(100), on_absent: 'retry' }),
])

beforeAll(async () => {
  effects = await startEffectServer()
  service = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
})
afterAll(async () => {
  await service.close()
  await effects.close()
  file.remove()
})
beforeEach(() => {
  fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
})
afterEach(() => fleet.stop())

const itemsOf = (prefix: string, count: number, delayMs: number) =>
  Array.from({ length: count }, (_, i) => ({ key: `${prefix}-${i}`, input: { delay_ms: delayMs } }))

const applied = (prefix: string): number[] =>
  Object.entries(effects.entries())
    .filter(([key]) => key.includes(`:${prefix}-`))
    .map(([, entry]) => entry.applied)

/** Leased shards by the worker that holds them. */
const leases = (id: string) =>
  service.database.query(
    ({ sql }) => sql<{ shard: number; owner: string; epoch: number; in_flight: number; state: string }>`
      select shard, lease_owner as owner, lease_epoch::int as epoch, in_flight, state from operation_shards
      where operation_id = ${id}::uuid order by shard`,
  )

const crash = async (worker: WorkerProcess): Promise<void> => {
  worker.kill('SIGKILL')
  await waitForExit(worker.child)
}

describe('a worker that is killed', { timeout: PROCESSES_MS }, () => {
  it('leaves at most 2 × concurrency uncertain effects a shard, and another goes on; nothing happens twice', async () => {
    const first = await fleet.start()
    const { id } = await service.submit('grant', itemsOf('killed', 60, 150))
    await eventually('both shards are busy', async () => {
      const view = await service.view(id)
      return view.counts.applied >= 8 && view.counts.inFlight >= 2 * CONCURRENCY
    })
    await crash(first)
    const inFlight = (await leases(id)).map((shard) => shard.in_flight)
    for (const count of inFlight) expect(count).toBeLessThanOrEqual(2 * CONCURRENCY)
    const lost = inFlight.reduce((sum, count) => sum + count, 0)
    expect(lost).toBeGreaterThan(0)

    const second = await fleet.start()
    const view = await untilStatus(service, id, 'reconciliation_required')
    expect(view.counts).toMatchObject({ applied: 60 - lost, uncertain: lost, unprocessed: 0, failed: 0, inFlight: 0 })
    const cases = await service.cases(id)
    expect(cases).toHaveLength(lost)
    expect(new Set(cases.map((found) => found.cause))).toEqual(new Set(['worker_lost']))
    const recovered = (await service.ledger(id)).filter((entry) => entry.state === 'uncertain')
    expect(new Set(recovered.map((entry) => `${entry.source} ${entry.reasonCode} ${entry.workerId}`))).toEqual(
      new Set([`recovery WORKER_LOST ${second.id}`]),
    )
    expect(Math.max(...applied('killed'))).toBe(1)
    expect((await leases(id)).map((shard) => shard.epoch >= 2)).toEqual([true, true])
    await expectConserved(service, id)
  })

  it('case 7: comes back at once on the same host under a new id, and does not take the old leases for its own', async () => {
    const first = await fleet.start()
    const { id } = await service.submit('grant', itemsOf('again', 24, 200))
    // not only intents, which nobody may have sent yet
    await eventually(
      'it works',
      async () => applied('again').includes(1) && (await service.view(id)).counts.inFlight > 0,
    )
    await crash(first)
    const second = await fleet.start()
    expect(second.id).not.toBe(first.id)
    expect((await leases(id)).filter((shard) => shard.state === 'leased').map((shard) => shard.owner)).not.toContain(
      second.id,
    )
    await untilStatus(service, id, ['reconciliation_required', 'succeeded'])
    const rows = await service.database.query(
      ({ sql }) =>
        sql<{
          id: string
          pid: number
        }>`select id, pid from workers where id in (${first.id}::uuid, ${second.id}::uuid)`,
    )
    expect(new Set(rows.map((row) => row.id))).toEqual(new Set([first.id, second.id]))
    expect(Math.max(...applied('again'))).toBe(1)
    await expectConserved(service, id)
  })

  it('between two windows, with nothing in flight: the next one starts at the cursor and nothing is uncertain', async () => {
    const first = await fleet.start()
    // a first window that ends, and retries that are waited for: then no intent is open
    const items = [
      ...itemsOf('between', 4, 0),
      ...['a', 'b'].map((key) => ({ key: `between-busy-${key}`, input: { mode: 'busy_once' } })),
    ]
    const { id } = await service.submit('grant', items)
    await untilStatus(service, id, 'succeeded')
    await crash(first)
    const { id: next } = await service.submit('grant', itemsOf('between2', 20, 0))
    await fleet.start()
    const view = await untilStatus(service, next, 'succeeded')
    expect(view.counts).toMatchObject({ applied: 20, uncertain: 0 })
    expect(Math.max(...applied('between'), ...applied('between2'))).toBe(1)
  })

  it('case 47, case 49: while workers are killed again and again, the counts are the ledger at every poll', async () => {
    const { id } = await service.submit('grant-looked-up', itemsOf('again-and-again', 60, 60))
    let worker = await fleet.start()
    let kills = 0
    let done = 0
    const poll = async (): Promise<boolean> => {
      await expectConserved(service, id)
      const { counts, status } = await service.view(id)
      const processed = counts.total - counts.unprocessed
      expect(processed).toBeGreaterThanOrEqual(done)
      expect(processed).toBeLessThanOrEqual(counts.total)
      if (status === 'succeeded') expect(counts.applied).toBe(counts.total)
      done = processed
      return status === 'succeeded'
    }
    let next = 8
    await eventually(
      'everything is applied',
      async () => {
        if (kills < 3 && done >= next) {
          await crash(worker)
          kills++
          next = done + 8
          worker = await fleet.start()
        }
        return poll()
      },
      { everyMs: 10 },
    )
    expect(kills).toBe(3)
    // an absence that a lookup confirmed is the evidence for the repeat: the effect itself never happens twice
    expect(applied('again-and-again')).toEqual(Array(60).fill(1))
  })
})
