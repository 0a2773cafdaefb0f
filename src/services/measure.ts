import { isFinal, OPERATION_STATUSES } from '../domain/operation.ts'
import { DELIVERY_STATES } from '../domain/webhook.ts'
import {
  readOldestTransactionSeconds,
  readOpenOperations,
  readTypeGauges,
  readWebhookDeliveries,
  readWorkersLive,
  type TypeGauges,
} from '../storage/gauges.ts'
import { readTypeWindows, SILENT_WINDOW, type TypeWindow } from '../storage/type-minutes.ts'
import type { ServiceContext } from './context.ts'
import type { Gauge } from './views.ts'

const WINDOW_MINUTES = 5
const UNDELIVERED_STATES = DELIVERY_STATES.filter((state) => state !== 'delivered')
const OPEN_STATUSES = OPERATION_STATUSES.filter((status) => !isFinal(status))

interface TypeGauge<T> {
  name: string
  help: string
  ofItems?: boolean
  of: (facts: T) => number
}

/** One series per type. */
const STANDING_GAUGES: readonly TypeGauge<TypeGauges>[] = [
  {
    name: 'oldest_waiting_seconds',
    help: 'Since the oldest shard that nobody works on was due; 0: nothing waits.',
    of: (gauges) => gauges.oldestWaitingSeconds,
  },
  {
    name: 'leases_expired',
    help: 'Leases that ran out and that nobody has taken over yet: their workers are gone, or hang.',
    of: (gauges) => gauges.leasesExpired,
  },
  {
    name: 'uncertain_items',
    help: 'Items of open operations of which it is not known whether their effect happened.',
    ofItems: true,
    of: (gauges) => gauges.uncertainItems,
  },
  {
    name: 'reconciliation_cases_open',
    help: 'Cases that wait for evidence.',
    ofItems: true,
    of: (gauges) => gauges.casesOpen,
  },
  {
    name: 'dead_letters',
    help: 'Open dead letters: items whose attempts are used up.',
    ofItems: true,
    of: (gauges) => gauges.deadLetters,
  },
]

/** Of all tenants together: a worker measures its types and not whose work it does. */
const WINDOW_GAUGES: readonly TypeGauge<TypeWindow>[] = [
  { name: 'calls_5m', help: 'Calls of the last 5 minutes.', ofItems: true, of: (window) => window.calls },
  {
    name: 'downstream_errors_5m',
    help: 'Calls of the last 5 minutes that ended in a 5xx, a 429, a timeout or a broken connection.',
    ofItems: true,
    of: (window) => window.errors,
  },
  {
    name: 'attempts_5m',
    help: 'Attempts of the last 5 minutes that ended with an outcome.',
    ofItems: true,
    of: (window) => window.items,
  },
  {
    name: 'rejected_5m',
    help: 'Attempts of the last 5 minutes that ended in a normal reject.',
    ofItems: true,
    of: (window) => window.rejected,
  },
  {
    name: 'retries_5m',
    help: 'Attempts of the last 5 minutes that were repetitions.',
    ofItems: true,
    of: (window) => window.retries,
  },
  {
    name: 'call_p95_seconds',
    help: 'The time that 95 % of the calls of the last 5 minutes did not exceed; 0: no calls.',
    of: (window) => (window.p95Ms ?? 0) / 1000,
  },
]

const nothing = (type: string): TypeGauges => ({
  type,
  shardsReady: 0,
  shardsLeased: 0,
  leasesExpired: 0,
  oldestWaitingSeconds: 0,
  uncertainItems: 0,
  casesOpen: 0,
  deadLetters: 0,
})

/** A series for each type, also at 0. */
const seriesOf = <T>(gauges: readonly TypeGauge<T>[], rows: readonly { type: string; facts: T }[]): Gauge[] =>
  gauges.map(({ name, help, ofItems = false, of }) => ({
    name,
    help,
    labelNames: ['type'],
    ofItems,
    values: rows.map(({ type, facts }) => ({ labels: { type }, value: of(facts) })),
  }))

type MeasureContext = Pick<ServiceContext, 'database' | 'types'>

/**
 * Gauges over the operations of one tenant, or (null) of all of them. Every installed type and every open status has its
 * series, also at 0.
 */
export const measureOperations = async (
  { database, types }: MeasureContext,
  tenantId: number | null,
): Promise<Gauge[]> => {
  const { operations, standing, webhooks } = await database.query(async (connection) => ({
    operations: await readOpenOperations(connection, tenantId),
    standing: await readTypeGauges(connection, tenantId),
    webhooks: await readWebhookDeliveries(connection, tenantId),
  }))
  const found = new Map(standing.map((gauges) => [gauges.type, gauges]))
  const rows = typeNames(types, found).map((type) => ({ type, facts: found.get(type) ?? nothing(type) }))
  return [
    {
      name: 'operations',
      help: 'Operations that are not final.',
      labelNames: ['status'],
      values: OPEN_STATUSES.map((status) => ({ labels: { status }, value: operations.get(status) ?? 0 })),
    },
    {
      name: 'shards',
      help: 'Shards with work left: ready for a worker, or leased by one.',
      labelNames: ['type', 'state'],
      values: rows.flatMap(({ type, facts }) => [
        { labels: { type, state: 'ready' }, value: facts.shardsReady },
        { labels: { type, state: 'leased' }, value: facts.shardsLeased },
      ]),
    },
    {
      name: 'webhook_deliveries',
      help: 'Webhooks that have not arrived: still to be sent, given up, or their receiver is gone. Those that ended count for 30 days.',
      labelNames: ['state'],
      values: UNDELIVERED_STATES.map((state) => ({ labels: { state }, value: webhooks.get(state) ?? 0 })),
    },
    ...seriesOf(STANDING_GAUGES, rows),
  ]
}

const typeNames = (types: MeasureContext['types'], others: ReadonlyMap<string, unknown>): string[] =>
  [...new Set([...types.list().map((type) => type.name), ...others.keys()])].sort()

/** Gauges of the service itself, which belong to no tenant. */
const measureService = async ({ database, types }: MeasureContext): Promise<Gauge[]> => {
  const { windows, workers, oldest } = await database.query(async (connection) => ({
    windows: await readTypeWindows(connection, WINDOW_MINUTES),
    workers: await readWorkersLive(connection),
    oldest: await readOldestTransactionSeconds(connection),
  }))
  const rows = typeNames(types, windows).map((type) => ({ type, facts: windows.get(type) ?? SILENT_WINDOW }))
  return [
    {
      name: 'workers_live',
      help: 'Workers that send heartbeats.',
      labelNames: [],
      values: [{ labels: {}, value: workers }],
    },
    {
      name: 'oldest_transaction_seconds',
      help: 'Age of the oldest transaction that keeps dead rows from being removed, as far as the database role may see it: over 300, end it, as claims grow dearer with it.',
      labelNames: [],
      values: [{ labels: {}, value: oldest }],
    },
    ...seriesOf(WINDOW_GAUGES, rows),
  ]
}

/** Gauges of the whole service, over all tenants. */
export const measure = async (context: MeasureContext): Promise<Gauge[]> => [
  ...(await measureOperations(context, null)),
  ...(await measureService(context)),
]
