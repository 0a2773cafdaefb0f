import { describe, expect, it } from 'vitest'
import { expectConserved, openTestService, type TestService, untilStatus } from '../support/service.ts'
import { poisonTypeFile } from '../support/service-poison-type.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const ATTEMPTS_MAX = 3
/** Each death costs a lease, a start and a claim. */
const WITHIN_MS = 160_000

/** A service with workers of its own. */
const withWorkers = async (run: (service: TestService, fleet: WorkerFleet) => Promise<void>): Promise<void> => {
  const service = await openTestService({ typeFiles: [poisonTypeFile] })
  await service.database.query(({ sql }) => sql`create table touched (key text not null)`)
  const fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [poisonTypeFile] })
  try {
    await run(service, fleet)
  } finally {
    await fleet.stop()
    await service.close()
  }
}

const itemsOf = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, i) => ({ key: `${prefix}-${i}`, input: { mode: 'ok' } }))

/** 100 good items with one bad one in their midst. */
const itemsWith = (prefix: string, mode: string) =>
  itemsOf(prefix, 101).map((item, i) => (i === 50 ? { ...item, input: { mode } } : item))

const expectGoodOnesOnce = async (service: TestService, id: string, prefix: string): Promise<void> => {
  const rows = await service.database.query(
    ({ sql }) => sql<{ key: string; times: number }>`
      select key, count(*)::int as times from touched where key like ${`${prefix}-%`} group by key`,
  )
  expect(rows).toHaveLength(100)
  expect(new Set(rows.map((row) => row.times))).toEqual(new Set([1]))
  const items = await service.items(id)
  const bad = items.get(`${prefix}-50`)
  const good = [...items.values()].filter((item) => item !== bad)
  expect(new Set(good.map((item) => `${item.state} ${item.attempt}`))).toEqual(new Set(['applied 1']))
  expect((await service.ledger(id)).filter((entry) => entry.itemKey !== `${prefix}-50`)).toHaveLength(100)
  await expectConserved(service, id)
}

const deadLetters = (service: TestService, id: string) =>
  service.database.query(
    ({ sql }) => sql<{
      item_key: string
      failure_class: string
      reason_code: string
      attempts: number
      message: string
    }>`
      select item_key, failure_class, reason_code, attempts, message from dead_letters where operation_id = ${id}::uuid`,
  )

describe('case 19: an item that kills its process', () => {
  // `reject` and `exit` are there in the type, too: each process that dies takes seconds, so two ways stand for all
  it.each(['abort', 'exit_on_retry'])(
    '(%s) is a dead letter when its attempts are used up; the good ones beside it run once, uncharged',
    (mode) =>
      withWorkers(async (service, fleet) => {
        const { id } = await service.submit('poison', itemsWith(mode, mode))
        const beside = await service.submit('poison', itemsOf('beside', 50))
        const workers = fleet.supervise()
        const view = await untilStatus(service, id, 'partially_succeeded', WITHIN_MS)
        expect(view.counts).toMatchObject({ applied: 100, failed: 1, uncertain: 0 })
        expect(view.failures).toEqual({ bug_suspected: 1 })
        expect(await deadLetters(service, id)).toMatchObject([
          {
            item_key: `${mode}-50`,
            failure_class: 'bug_suspected',
            reason_code: 'WORKER_CRASH',
            attempts: ATTEMPTS_MAX,
          },
        ])
        // one death after some progress, one without any, which raises the suspicion, and one for each run alone
        expect(workers.deaths()).toBeLessThanOrEqual(2 + ATTEMPTS_MAX)
        await expectGoodOnesOnce(service, id, mode)
        expect((await untilStatus(service, beside.id, 'succeeded')).counts.applied).toBe(50)
        expect(new Set([...(await service.items(beside.id)).values()].map((item) => item.attempt))).toEqual(
          new Set([1]),
        )
        await expectConserved(service, beside.id)
      }),
    WITHIN_MS + 20_000,
  )
})

describe('case 65: an item whose error does not fit into the database', () => {
  it('is a dead letter with its text made fit, and kills nobody', () =>
    withWorkers(async (service, fleet) => {
      const worker = await fleet.start()
      const { id } = await service.submit('poison', itemsWith('throw_nul', 'throw_nul'))
      const view = await untilStatus(service, id, 'partially_succeeded')
      expect(view.counts).toMatchObject({ applied: 100, failed: 1 })
      expect(await deadLetters(service, id)).toMatchObject([
        {
          item_key: 'throw_nul-50',
          failure_class: 'transient',
          reason_code: 'HANDLER_ERROR',
          attempts: ATTEMPTS_MAX,
          message: 'bad \ufffd text \ufffd of throw_nul-50',
        },
      ])
      expect(worker.child.exitCode).toBeNull()
      await expectGoodOnesOnce(service, id, 'throw_nul')
    }))
})
