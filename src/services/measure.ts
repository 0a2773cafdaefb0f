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

/** One series per type. */
const TYPE_GAUGES: readonly { name: string; help: string; of: (gauges: TypeGauges, window: TypeWindow) => number }[] = [
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
    of: (gauges) => gauges.uncertainItems,
  },
  {
    name: 'reconciliation_cases_open',
    help: 'Cases that wait for evidence.',
    of: (gauges) => gauges.casesOpen,
  },
  {
    name: 'dead_letters',
    help: 'Open dead letters: items whose attempts are used up.',
    of: (gauges) => gauges.deadLetters,
  },
  { name: 'calls_5m', help: 'Calls of the last 5 minutes.', of: (_, window) => window.calls },
  {
    name: 'downstream_errors_5m',
    help: 'Calls of the last 5 minutes that ended in a 5xx, a 429, a timeout or a broken connection.',
    of: (_, window) => window.errors,
  },
  {
    name: 'attempts_5m',
    help: 'Attempts of the last 5 minutes that ended with an outcome.',
    of: (_, window) => window.items,
  },
  {
    name: 'rejected_5m',
    help: 'Attempts of the last 5 minutes that ended in a normal reject.',
    of: (_, window) => window.rejected,
  },
  {
    name: 'retries_5m',
    help: 'Attempts of the last 5 minutes that were repetitions.',
    of: (_, window) => window.retries,
  },
  {
    name: 'call_p95_seconds',
    help: 'The time that 95 % of the calls of the last 5 minutes did not exceed; 0: no calls.',
    of: (_, window) => (window.p95Ms ?? 0) / 1000,
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

/** Gauges of the whole service, over all tenants. Every installed type and every open status has its series, also at 0. */
export const measure = async ({ database, types }: Pick<ServiceContext, 'database' | 'types'>): Promise<Gauge[]> => {
  const { operations, standing, windows, workers, webhooks, oldest } = await database.query(async (connection) => ({
    operations: await readOpenOperations(connection),
    standing: await readTypeGauges(connection),
    windows: await readTypeWindows(connection, WINDOW_MINUTES),
    workers: await readWorkersLive(connection),
    webhooks: await readWebhookDeliveries(connection),
    oldest: await readOldestTransactionSeconds(connection),
  }))
  const found = new Map(standing.map((gauges) => [gauges.type, gauges]))
  const names = [...new Set([...types.list().map((type) => type.name), ...found.keys(), ...windows.keys()])].sort()
  const rows = names.map((type) => ({
    gauges: found.get(type) ?? nothing(type),
    window: windows.get(type) ?? SILENT_WINDOW,
  }))
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
      values: rows.flatMap(({ gauges }) => [
        { labels: { type: gauges.type, state: 'ready' }, value: gauges.shardsReady },
        { labels: { type: gauges.type, state: 'leased' }, value: gauges.shardsLeased },
      ]),
    },
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
    {
      name: 'webhook_deliveries',
      help: 'Webhooks that have not arrived: still to be sent, given up, or their receiver is gone. Those that ended count for 30 days.',
      labelNames: ['state'],
      values: UNDELIVERED_STATES.map((state) => ({ labels: { state }, value: webhooks.get(state) ?? 0 })),
    },
    ...TYPE_GAUGES.map(({ name, help, of }) => ({
      name,
      help,
      labelNames: ['type'],
      values: rows.map(({ gauges, window }) => ({ labels: { type: gauges.type }, value: of(gauges, window) })),
    })),
  ]
}
