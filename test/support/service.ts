/**
 * The service as a test sees it: a database of its own, the use cases of the api bound to it, and the facts below them. The
 * work is done by worker processes (worker-process.ts) or by an engine in this process (service-engine.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import type { Json, OperationType } from '../../src/domain/operation-type.ts'
import { SCOPES } from '../../src/domain/scope.ts'
import { loadOperationTypes } from '../../src/operation-types/registry.ts'
import type { Downloads } from '../../src/services/artifacts.ts'
import { assembleServices } from '../../src/services/assemble.ts'
import type { ServiceContext } from '../../src/services/context.ts'
import { ledgerSource } from '../../src/services/ledger-source.ts'
import type { Principal } from '../../src/services/principal.ts'
import type { SubmitRequest } from '../../src/services/requests.ts'
import type { CaseView, ItemView, LedgerEntryView, OperationView } from '../../src/services/views.ts'
import type { Sql } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { openWakeUps } from '../../src/storage/wake-ups.ts'
import { createTestDatabase } from './database.ts'
import { submitRequest } from './submit-request.ts'

/** For tests that start processes: seconds each, and more where the machine is busy. */
export const PROCESSES_MS = 180_000
const EVENTUALLY_MS = 120_000
const PAGE = 500
/** Items of one test are fewer. */
const PAGES_MAX = 100

export const principal: Principal = { tenantId: 1, name: 'tester', scopes: SCOPES }

export interface TestItem {
  key: string
  input?: Json
}

export interface TestService {
  /** Of the database. */
  url: string
  database: Database
  context: ServiceContext
  services: ReturnType<typeof assembleServices>
  submit(type: string, items: readonly TestItem[], change?: Partial<SubmitRequest>): Promise<OperationView>
  view(id: string): Promise<OperationView>
  /** Each item by its key. */
  items(id: string): Promise<Map<string, ItemView>>
  ledger(id: string): Promise<LedgerEntryView[]>
  /** Cases of an operation, oldest first. */
  cases(id: string): Promise<CaseView[]>
  close(): Promise<void>
}

/** `types` wins over `typeFiles`: types made or changed by the test itself. */
export const openTestService = async (sources: {
  typeFiles?: readonly string[]
  types?: readonly OperationType[]
  env?: Record<string, string>
  /** What `{secret.X}` reads. */
  secrets?: Record<string, string>
  webhooks?: ServiceContext['webhooks']
  downloads?: Downloads
}): Promise<TestService> => {
  const testDatabase = await createTestDatabase()
  const database = openDatabase({ url: testDatabase.url, size: 8, name: 'test service' })
  const registry = await loadOperationTypes({
    paths: sources.typeFiles ?? [],
    env: sources.env ?? {},
    secrets: (name) => sources.secrets?.[name],
    ledger: ledgerSource(database),
  })
  const given = sources.types
  const types = given
    ? { get: (name: string) => given.find((type) => type.name === name), list: () => [...given] }
    : registry
  const wakeUps = openWakeUps({ url: testDatabase.url, name: 'test service', onFault: () => {} })
  const context: ServiceContext = { database, types, wakeUps, ...(sources.webhooks && { webhooks: sources.webhooks }) }
  const services = assembleServices(context, sources.downloads)

  const all = async <T, P>(read: (position: P | null) => Promise<{ items: T[]; next: P | null } | null>) => {
    const found: T[] = []
    let position: P | null = null
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const page: { items: T[]; next: P | null } | null = await read(position)
      if (!page) throw new Error('there is no such operation')
      found.push(...page.items)
      position = page.next
      if (position === null) break
    }
    return found
  }

  return {
    url: testDatabase.url,
    database,
    context,
    services,
    async submit(type, items, change = {}) {
      const complete = items.map((item) => ({ key: item.key, input: item.input ?? {} }))
      const { operation } = await services.submitOperation(
        principal,
        submitRequest(type, complete, { body: { type, items: complete }, ...change }),
      )
      return operation
    },
    async view(id) {
      const view = await services.getOperation(principal, id)
      if (!view) throw new Error('there is no such operation')
      return view
    },
    async items(id) {
      const filters = { state: [], failureClass: [], key: null }
      const items = await all((position: { ord: number } | null) =>
        services.listItems(principal, id, filters, { limit: PAGE, position }),
      )
      return new Map(items.map((item) => [item.key, item]))
    },
    ledger: (id) =>
      all((position: { ord: number; seq: number } | null) =>
        services.listLedger(principal, id, { limit: PAGE, position }),
      ),
    async cases(id) {
      const filters = { operationId: id, type: null, status: [], itemKey: null }
      return all((position: { openedAt: string; id: string } | null) =>
        services.listCases(principal, filters, { limit: PAGE, position }),
      )
    },
    async close() {
      await services.close()
      await wakeUps.close()
      await database.close()
      await registry.close()
      await testDatabase.drop()
    },
  }
}

/** Like `until`, for what takes several leases. */
export const eventually = async (
  what: string,
  holds: () => boolean | Promise<boolean>,
  { withinMs = EVENTUALLY_MS, everyMs = 25 } = {},
): Promise<void> => {
  const giveUpAt = performance.now() + withinMs
  while (!(await holds())) {
    if (performance.now() > giveUpAt) throw new Error(`not within ${withinMs / 1000} s: ${what}`)
    await sleep(everyMs)
  }
}

export const untilStatus = async (
  service: Pick<TestService, 'view'>,
  id: string,
  status: OperationView['status'] | readonly OperationView['status'][],
  withinMs = EVENTUALLY_MS,
): Promise<OperationView> => {
  const wanted = [status].flat()
  let view = await service.view(id)
  await eventually(
    `operation ${id} is ${wanted.join(' or ')}`,
    async () => {
      view = await service.view(id)
      return wanted.includes(view.status)
    },
    { withinMs },
  ).catch((error: unknown) => {
    throw new Error(`${String(error)}; it is ${JSON.stringify({ status: view.status, counts: view.counts })}`)
  })
  return view
}

interface Audit {
  total: number
  counted: string
  ledgered: string
  in_flight: number
  intents: number
  waiting: number
  retries: number
  misplaced: number
}

/**
 * The conservation law from one snapshot: the counters are the ledger's, what is in flight are intents, what waits is
 * queued, and every item below a cursor is in exactly one place (invariants B and C of storage/run/lease.ts).
 */
export const expectConserved = async ({ database }: { database: Database }, operationId: string): Promise<void> => {
  const [audit] = await database.query(({ sql }) => readAudit(sql, operationId))
  if (!audit) throw new Error('there is no such operation')
  expect(audit.ledgered).toBe(audit.counted)
  expect(audit.intents).toBe(audit.in_flight)
  expect(audit.retries).toBe(audit.waiting)
  expect(audit.misplaced).toBe(0)
}

const readAudit = (sql: Sql, operationId: string): Promise<Audit[]> =>
  sql<Audit>`
    with latest as (
      select distinct on (ord) ord, state, failure_class from ledger_entries
      where operation_id = ${operationId}::uuid and state is not null order by ord, seq desc),
    intent as (select ord from effects where operation_id = ${operationId}::uuid and state = 'intent'),
    wait as (select ord from item_retries where operation_id = ${operationId}::uuid),
    s as (select * from operation_shards where operation_id = ${operationId}::uuid)
    select o.items_total::int as total,
      (select concat_ws(' ', sum(applied), sum(skipped), sum(failed), sum(uncertain), sum(failed_transient)) from s) as counted,
      (select concat_ws(' ', count(*) filter (where state = 'applied'), count(*) filter (where state = 'skipped'),
        count(*) filter (where state = 'failed'), count(*) filter (where state = 'uncertain'),
        count(*) filter (where state = 'failed' and failure_class = 'transient')) from latest) as ledgered,
      (select sum(in_flight)::int from s) as in_flight, (select count(*)::int from intent) as intents,
      (select sum(waiting)::int from s) as waiting, (select count(*)::int from wait) as retries,
      (select count(*)::int from operation_items i join s on i.ord >= s.from_ord and i.ord < s.to_ord
        where i.operation_id = ${operationId}::uuid and
          case when i.ord < s.cursor
            -- a claimed repeat has its last entry and its intent; a waiting one its entry and its row
            then (exists (select from intent n where n.ord = i.ord))::int
              + (exists (select from wait w where w.ord = i.ord))::int > 1
              or not (exists (select from intent n where n.ord = i.ord) or exists (select from wait w where w.ord = i.ord)
                or exists (select from latest l where l.ord = i.ord))
            else exists (select from intent n where n.ord = i.ord) or exists (select from wait w where w.ord = i.ord)
              or exists (select from latest l where l.ord = i.ord) end) as misplaced
    from operations o where o.id = ${operationId}::uuid`
