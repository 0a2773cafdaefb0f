/** Bulk actions with real workers, one of which is killed on the way. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { BulkScope } from '../../src/domain/bulk-action.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit } from '../support/processes.ts'
import {
  eventually,
  openTestService,
  PROCESSES_MS,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const COUNT = 24
const typeFile = writeTypeFile([grantType('grant'), grantType('later')])
let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
beforeAll(async () => {
  effects = await startEffectServer()
  const env = { EFFECTS_URL: effects.url }
  service = await openTestService({ typeFiles: [typeFile.file], env })
  fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [typeFile.file], env })
}, PROCESSES_MS)
afterAll(async () => {
  await fleet.stop()
  await service.close()
  await effects.close()
  typeFile.remove()
})

const submit = async (type: string, mode: string, run: string, change: object = {}): Promise<string[]> => {
  const ids: string[] = []
  for (let n = 0; n < COUNT; n++) {
    const { id } = await service.submit(type, [{ key: `${run}-${n}`, input: { mode } }], { labels: { run }, ...change })
    ids.push(id)
  }
  return ids
}
const bulk = async (action: 'cancel' | 'replay', run: string, scope: BulkScope | null = null): Promise<string> => {
  const { action: made } = await service.services.createBulkAction(principal, {
    action,
    filter: {
      status: [],
      type: null,
      requestedBy: null,
      labels: { run },
      createdAfter: null,
      createdBefore: null,
      replayOf: null,
    },
    scope,
    reason: 'the provider is well again',
    dryRun: false,
    ratePerSecond: 20,
    idempotencyKey: null,
    body: {},
  })
  return made.id
}
const read = async (id: string) => {
  const found = await service.services.getBulkAction(principal, id)
  if (!found) throw new Error('there is no such bulk action')
  return found
}
const finished = (id: string) =>
  eventually('the bulk action has finished', async () => (await read(id)).status === 'finished')
/** Claims of the dead worker are as good as given back: a minute has passed. */
const passClaims = () =>
  service.database.query(
    ({ sql }) => sql`update bulk_action_targets set due_at = clock_timestamp() where state = 'pending'`,
  )

describe('by real workers', () => {
  it(
    'a cancel of all that waits',
    async () => {
      const runAfter = new Date(Date.now() + 3_600_000).toISOString()
      const ids = await submit('later', 'ok', 'late', { runAfter })
      await fleet.start()
      const id = await bulk('cancel', 'late')
      await finished(id)
      expect((await read(id)).counts).toMatchObject({ total: COUNT, done: COUNT })
      for (const operation of ids) expect((await service.view(operation)).status).toBe('cancelled')
    },
    PROCESSES_MS,
  )

  it(
    'a replay of all that failed, while a worker is killed: one replay of each, and each effect once',
    async () => {
      const ids = await submit('grant', 'conflict', 'again')
      const doomed = await fleet.start()
      for (const id of ids) await untilStatus(service, id, 'failed')
      const id = await bulk('replay', 'again', { states: ['failed'], failureClasses: null, itemKeys: null })
      await eventually('some are done', async () => (await read(id)).counts.done >= 3)
      doomed.kill('SIGKILL')
      await waitForExit(doomed.child)
      await fleet.start()
      await passClaims()
      await finished(id)
      expect((await read(id)).counts).toMatchObject({ total: COUNT, done: COUNT })
      for (const [n, operation] of ids.entries()) {
        const { replayedBy } = await service.view(operation)
        expect(replayedBy).toHaveLength(1)
        await untilStatus(service, replayedBy[0] ?? '', ['failed', 'reconciliation_required'])
        // once by the operation, once by its only replay, if that was not lost with its worker before it was sent
        expect(effects.entry(`grant:again-${n}`).requests).toBeLessThanOrEqual(2)
      }
    },
    PROCESSES_MS,
  )
})
