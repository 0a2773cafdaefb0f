/** Case 97: every maintenance loop twice, without a pause, beside workers, cancels, pauses and bulk actions. */
import { pino } from 'pino'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openMaintenance } from '../../src/maintenance/schedule.ts'
import { NO_OBJECT_STORE } from '../../src/objects/object-store.ts'
import { createBulkAction } from '../../src/services/bulk-actions.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { CHORES } from '../support/old-rows.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  principal,
  type TestService,
} from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { BUSY, openProvider, UNKNOWN } from '../support/service-provider.ts'

const OPERATIONS = 12
const ITEMS = 8
const JANITORS = 2

const provider = openProvider()
const type = provider.type('grant', { parallelism: 2, onAbsent: 'retry' }, { afterMs: 0 })
let service: TestService
beforeAll(async () => {
  service = await openTestService({ types: [type] })
})
afterAll(() => service.close())

const readDeadlocks = async (url: string): Promise<number> => {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    const [row] = await sql`
      select deadlocks::int as n from pg_stat_database where datname = current_database()`
    return row?.n
  } finally {
    await sql.end()
  }
}

it('two of each janitor beside claims, cancels, pauses and bulk actions: no deadlock, and nothing fails (case 97)', {
  timeout: PROCESSES_MS,
}, async () => {
  const warnings: string[] = []
  const log = pino({ level: 'warn', base: null }, { write: (line) => warnings.push(line) })
  const database = openDatabase({ url: service.url, size: 12, name: 'janitors' })
  const context = { ...service.context, database, objects: NO_OBJECT_STORE }
  const janitors = Array.from({ length: JANITORS }, () =>
    openMaintenance(context, log, { secrets: [], privateAddresses: 'refuse' }),
  )
  const engines = await Promise.all(
    Array.from({ length: 2 }, () => startTestEngine({ url: service.url, types: [type], maintenance: false })),
  )
  let live = true
  let runs = 0
  const loops = janitors.flatMap(({ services }) =>
    services.map(async ({ runOnce }) => {
      while (live) {
        await runOnce()
        runs++
      }
    }),
  )
  const plants = Object.values(CHORES).map(async ({ plant }) => {
    while (live) await database.query(({ script }) => script(plant))
  })
  const ids: string[] = []
  try {
    for (let n = 0; n < OPERATIONS; n++) {
      const items = Array.from({ length: ITEMS }, (_, i) => ({
        key: `${n}-${i}`,
        // neighbours want some of the same keys, in the other order
        input: { target: i < 3 ? `shared-${n % 2 === 0 ? i : 2 - i}` : `${n}-${i}` },
      }))
      provider.answer(`${n}-4`, UNKNOWN)
      provider.find(`${n}-4`, { state: 'applied', evidenceRef: 'lookup' })
      provider.answer(`${n}-5`, BUSY)
      const deadlineAt = n % 4 === 3 ? new Date(Date.now() + 1_000).toISOString() : null
      const { id } = await service.submit('grant', items, {
        deadlineAt,
        labels: { group: String(n % 3) },
        after: n % 5 === 4 ? [ids.at(-1) ?? ''] : [],
        afterWhen: 'settled',
        stopIf: n % 2 === 0 ? ['ambiguous_effect_targets > 5'] : [],
      })
      ids.push(id)
      const now = { reason: null, ifMatchVersion: null }
      if (n % 3 === 1) await service.services.pauseOperation(principal, id, now).catch(() => {})
      if (n % 3 === 1) await service.services.resumeOperation(principal, id, now).catch(() => {})
      if (n % 6 === 2) await service.services.cancelOperation(principal, id, now).catch(() => {})
    }
    await createBulkAction({ database }, principal, {
      action: 'cancel',
      filter: {
        status: [],
        type: 'grant',
        requestedBy: null,
        labels: { group: '0' },
        createdAfter: null,
        createdBefore: null,
        replayOf: null,
      },
      scope: null,
      reason: 'incident 7',
      dryRun: false,
      ratePerSecond: 100,
      idempotencyKey: null,
      body: {},
    })
    await eventually('every operation has ended', async () => {
      const [row] = await service.database.query(
        ({ sql }) => sql<{ open: number }>`
          select (select count(*) from operations where completed_at is null)::int
            + (select count(*) from bulk_actions where completed_at is null and status <> 'dry_run')::int as open`,
      )
      return row?.open === 0
    })
  } finally {
    live = false
    await Promise.all([...loops, ...plants])
    await Promise.all(engines.map((engine) => engine.drain()))
    await Promise.all(janitors.map((janitor) => janitor.close()))
    await database.close() // a session reports its figures when it ends
  }
  for (const id of ids) await expectConserved(service, id)
  expect(runs).toBeGreaterThan(100)
  expect(warnings).toEqual([])
  expect(engines.flatMap((engine) => engine.logged())).toEqual([])
  expect(await readDeadlocks(service.url)).toBe(0)
})
