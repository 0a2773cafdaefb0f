import { randomUUID } from 'node:crypto'
import pino from 'pino'
import { AppError } from '../../src/domain/errors.ts'
import { isFinal, isSettled, type OperationStatus } from '../../src/domain/operation.ts'
import type { App } from '../../src/http/app.ts'
import type { HttpConfig, ServerDeps, ServerState, Services } from '../../src/http/deps.ts'
import { buildServer } from '../../src/http/server.ts'
import type { Principal } from '../../src/services/principal.ts'
import type { SubmitRequest } from '../../src/services/requests.ts'
import type { CaseView, EventView, ItemView, LedgerEntryView, OperationView } from '../../src/services/views.ts'

/** Use cases in memory, just enough to try the HTTP edge on its own. They stand in for no database. */
export class FakeServices {
  readonly operations: OperationView[] = []
  readonly submissions: SubmitRequest[] = []
  readonly cases: CaseView[] = []
  readonly calls: { name: string; arguments: unknown[] }[] = []
  items: ItemView[] = []
  entries: LedgerEntryView[] = []
  events: EventView[] = []
  keys = new Map<string, { principal: Principal; keyHash: string }>()
  tenants = new Map<string, number>()
  isDatabaseUp = true
  readonly #waiters = new Set<() => void>()

  add(status: OperationStatus = 'running'): OperationView {
    const operation = makeOperation(status)
    this.operations.unshift(operation)
    return operation
  }

  /** Moves an operation on and wakes whoever waits for it. */
  change(operation: OperationView, status: OperationStatus): void {
    operation.version += 1
    operation.status = status
    for (const wake of [...this.#waiters]) wake()
  }

  get waiting(): number {
    return this.#waiters.size
  }

  find(id: string): OperationView {
    const found = this.operations.find((operation) => operation.id === id)
    if (found === undefined) throw new AppError('operation-not-found', 'There is no such operation')
    return found
  }

  toServices(): Services {
    const fake = this
    const services: Services = {
      async submitOperation(_principal, request) {
        fake.submissions.push(request)
        return { operation: fake.add('pending'), replayed: request.idempotencyKey === 'seen' }
      },
      getOperation: async (_principal, id) => fake.operations.find((operation) => operation.id === id) ?? null,
      async listOperations(_principal, _filters, { limit, position }) {
        const from = position === null ? 0 : fake.operations.findIndex(({ id }) => id === position.id) + 1
        const items = fake.operations.slice(from, from + limit)
        const last = items.at(-1)
        const hasMore = from + limit < fake.operations.length
        return { items, next: hasMore && last ? { createdAt: last.createdAt, id: last.id } : null }
      },
      async cancelOperation(_principal, id, { ifMatchVersion }) {
        const operation = fake.find(id)
        if (ifMatchVersion !== null && ifMatchVersion !== operation.version)
          throw new AppError('version-conflict', 'The operation has changed')
        if (isFinal(operation.status))
          throw new AppError('operation-already-final', 'It has ended', {
            extra: { operation_status: operation.status },
          })
        fake.change(operation, 'cancel_requested')
        return { status: 202, operation }
      },
      pauseOperation: async (_principal, id) => ({ status: 202, operation: fake.find(id) }),
      resumeOperation: async (_principal, id) => ({ status: 200, operation: fake.find(id) }),
      async uploadItems(_principal, _id, request) {
        let added = 0
        for await (const rows of request.rows) added += rows.length
        return { added, total: added, replayed: false }
      },
      startDraft: async (_principal, id) => fake.find(id),
      waitForChange: (_principal, id, { seconds, seenVersion, signal }) =>
        new Promise((resolve) => {
          const done = () => {
            clearTimeout(timer)
            fake.#waiters.delete(check)
            resolve(fake.find(id))
          }
          const check = () => {
            const { version, status } = fake.find(id)
            if (seenVersion === null ? isSettled(status) : version !== seenVersion) done()
          }
          const timer = setTimeout(done, seconds * 1000)
          signal.addEventListener('abort', done)
          fake.#waiters.add(check)
          check()
        }),
      listItems: async (_principal, _id, _filters, { limit }) => ({ items: fake.items.slice(0, limit), next: null }),
      streamItems: async () => pagesOf(fake.items),
      listLedger: async (_principal, _id, { limit }) => ({ items: fake.entries.slice(0, limit), next: null }),
      streamLedger: async () => pagesOf(fake.entries),
      listCheckpoints: async () => ({ items: [], next: null }),
      async listEvents(_principal, _id, { limit, position }) {
        const items = fake.events.filter(({ version }) => version > (position?.version ?? -1)).slice(0, limit)
        return { items, next: null }
      },
      listCases: async () => ({ items: fake.cases, next: null }),
      getCase: async (_principal, id) => fake.cases.find((each) => each.id === id) ?? null,
      lookupCase: async () => {
        throw new AppError('lookup-not-available', 'The type has no lookup')
      },
      resolveCase: async () => {
        throw new AppError('case-already-resolved', 'It is resolved', { extra: { resolution: 'applied' } })
      },
      async receiveCallback({ headers }) {
        const eventId = String(headers['webhook-id'])
        const view = { eventId, outcome: 'ignored', duplicate: false, judged: true, operationId: null } as const
        return { ...view, itemKey: null, effectKey: null, caseId: null }
      },
      listDeadLetters: async () => ({ items: [], next: null }),
      getDeadLetter: async () => null,
      discardDeadLetter: async () => {
        throw new AppError('dead-letter-already-closed', 'It is closed', { extra: { outcome: 'discarded' } })
      },
      async getArtifact(_principal, id) {
        fake.find(id)
        throw new AppError('artifact-not-published', 'Nothing was published')
      },
      openDownload: async () => {
        throw new AppError('download-link-invalid', 'The signature does not fit')
      },
      listIncidents: async () => ({ items: [], next: null }),
      getIncident: async () => null,
      resolveIncident: async () => {
        throw new AppError('incident-not-found', 'There is no such incident')
      },
      listItemHistory: async () => {
        throw new AppError('item-not-found', 'There is no such item')
      },
      preflightReplay: async () => {
        throw new AppError('operation-not-found', 'There is no such operation')
      },
      replayOperation: async () => {
        throw new AppError('operation-not-found', 'There is no such operation')
      },
      preflightCompensation: async () => {
        throw new AppError('operation-not-found', 'There is no such operation')
      },
      compensateOperation: async () => {
        throw new AppError('operation-not-found', 'There is no such operation')
      },
      decideApproval: async () => {
        throw new AppError('operation-not-found', 'There is no such operation')
      },
      listWebhookDeliveries: async () => ({ items: [], next: null }),
      getWebhookDelivery: async () => null,
      redeliverWebhook: async () => {
        throw new AppError('webhook-delivery-in-progress', 'It is being sent')
      },
      createBulkAction: async () => {
        throw new AppError('bulk-filter-empty', 'The filter leaves nothing out')
      },
      listBulkActions: async () => ({ items: [], next: null }),
      getBulkAction: async () => null,
      listBulkTargets: async () => null,
      startBulkAction: async () => {
        throw new AppError('bulk-action-not-found', 'There is no such bulk action')
      },
      abortBulkAction: async () => {
        throw new AppError('bulk-action-not-found', 'There is no such bulk action')
      },
      listOperationTypes: async () => [],
      getOperationType: async () => null,
      pauseOperationType: async () => {
        throw new AppError('operation-type-not-found', 'There is no such type')
      },
      resumeOperationType: async () => {
        throw new AppError('operation-type-not-found', 'There is no such type')
      },
      listAudit: async () => ({ items: [], next: null }),
      streamAudit: async function* () {},
      listWorkers: async () => [],
      claimWork: async () => ({ worker: 'wk1.a.b', notRunnable: [], batch: null }),
      reportWork: async () => {
        throw new AppError('lease-not-found', 'there is no such lease')
      },
      giveBackWork: async () => {
        throw new AppError('lease-not-found', 'there is no such lease')
      },
      beatWork: async () => [],
      healthReport: async () => ({ generatedAt: DB_TIME, types: [] }),
      async authenticate(keyHash) {
        if (!fake.isDatabaseUp) throw new AppError('database-unavailable', 'away')
        return fake.keys.get(keyHash) ?? null
      },
      findTenant: async (name) => fake.tenants.get(name) ?? null,
      readiness: async () => ({
        ready: fake.isDatabaseUp,
        checks: [{ name: 'database', ok: fake.isDatabaseUp, detail: null }],
      }),
      measure: async () => [
        { name: 'shards_ready', help: 'h', labelNames: ['type'], values: [{ labels: { type: 't' }, value: 3 }] },
      ],
    }
    return new Proxy(services, {
      get:
        (target, name: keyof Services) =>
        (...parameters: never[]) => {
          fake.calls.push({ name, arguments: parameters })
          return (target[name] as (...all: never[]) => unknown)(...parameters)
        },
    })
  }
}

async function* pagesOf<Row>(rows: Row[]): AsyncGenerator<Row[]> {
  for (let from = 0; from < rows.length; from += 1_000) yield rows.slice(from, from + 1_000)
}

export const DB_TIME = '2026-11-29 14:20:18.123456+00'

export const makeOperation = (status: OperationStatus): OperationView => ({
  id: randomUUID(),
  type: 'grant-role',
  typeVersion: 3,
  status,
  version: 7,
  counts: { total: 10, applied: 4, skipped: 0, failed: 1, uncertain: 0, unprocessed: 5, inFlight: 2 },
  failures: { conflict: 1 },
  countsSensitive: false,
  lastProgressAt: DB_TIME,
  cancel: {
    possible: true,
    guarantee: 'no_new_sends',
    requestedAt: null,
    requestedBy: null,
    reason: null,
    acknowledgedAt: null,
    settledAt: null,
    appliedAfterRequest: 0,
  },
  approval: null,
  replayOf: null,
  replayedBy: [],
  compensates: null,
  compensatedBy: [],
  after: [],
  afterWhen: null,
  waitingFor: [],
  risk: 'high',
  stuckSignals: [],
  error: null,
  callbackUrl: null,
  requestedBy: 'dev',
  reason: null,
  labels: {},
  priority: 0,
  runAfter: null,
  deadlineAt: null,
  createdAt: DB_TIME,
  startedAt: DB_TIME,
  completedAt: isFinal(status) ? DB_TIME : null,
  itemsPurgedAt: null,
  ledgerPurgedAt: null,
  now: DB_TIME,
})

export interface Edge {
  app: App
  fake: FakeServices
  state: ServerState
}

export const openEdge = async (
  config: Partial<HttpConfig> = {},
  log: pino.Logger = pino({ level: 'silent' }),
  others: Pick<ServerDeps, 'consoleDirectory' | 'pressure'> = {},
): Promise<Edge> => {
  const fake = new FakeServices()
  const state = { draining: false }
  const app = await buildServer({
    services: fake.toServices(),
    config: { auth: 'off', publicUrl: null, ...config },
    state,
    log,
    ...others,
  })
  await app.ready()
  return { app, fake, state }
}
