/** How each route of the OpenAPI document is asked for something that belongs to somebody else. */
import { type Ask, MARK, type Owned, remoteClaim } from './tenant-world.ts'

interface RouteWalk {
  ask: (owned: Owned) => Ask
  /** What a tenant is answered to whom it does not belong: 404, where the route names a thing; else it sees its own. */
  stranger: number
  /** What the owner asks instead, where that is something else. */
  ownerAsks?: (owned: Owned) => Ask
}

const NOT_FOUND = 404

/** Names one thing of a tenant. */
const named = (path: (owned: Owned) => string, body?: unknown): RouteWalk => ({
  ask: (owned) => ({ path: path(owned), ...(body !== undefined && { body }) }),
  stranger: NOT_FOUND,
})

/** Names nothing: everybody is answered what is their own, or everybody's. */
const unnamed = (path: (owned: Owned) => string, status = 200, body?: (owned: Owned) => unknown): RouteWalk => ({
  ask: (owned) => ({ path: path(owned), ...(body && { body: body(owned) }) }),
  stranger: status,
})

/** Names in its body what a worker holds. */
const held = (path: string, body: (owned: Owned) => unknown): RouteWalk => ({
  ask: (owned) => ({ path, body: body(owned) }),
  stranger: NOT_FOUND,
})

const below = (path: string, body?: unknown) => named(({ operation }) => `/operations/${operation}${path}`, body)
const reason = { reason: 'r' }

/** By `operationId`. */
export const ROUTE_WALKS: Readonly<Record<string, RouteWalk>> = {
  submitOperation: unnamed(
    () => '/operations',
    422,
    ({ operation }) => ({ type: 'grant', items: [{ key: `${MARK}-after`, input: {} }], after: [operation] }),
  ),
  listOperations: unnamed(() => `/operations?label.team=${MARK}`),
  getOperation: below(''),
  cancelOperation: named(({ later }) => `/operations/${later}/cancel`, reason),
  pauseOperation: named(({ later }) => `/operations/${later}/pause`, reason),
  resumeOperation: named(({ later }) => `/operations/${later}/resume`, reason),
  uploadItems: {
    ask: ({ draft }) => ({
      path: `/operations/${draft}/items`,
      body: `${JSON.stringify({ key: `${MARK}-up`, input: {} })}\n`,
      headers: { 'content-type': 'application/x-ndjson' },
    }),
    stranger: NOT_FOUND,
  },
  startOperation: named(({ draft }) => `/operations/${draft}/start`, reason),
  listItems: below('/items'),
  listLedger: below('/ledger'),
  listCheckpoints: below('/checkpoints'),
  listEvents: below('/events'),
  listItemHistory: named(({ operation, item }) => `/operations/${operation}/items/${item}/history`),
  preflightReplay: below('/replay-preflight', {}),
  replayOperation: {
    ask: ({ operation, preflight }) => ({
      path: `/operations/${operation}/replay`,
      body: { preflight_id: preflight, ...reason },
    }),
    stranger: NOT_FOUND,
  },
  decideApproval: named(({ unapproved }) => `/operations/${unapproved}/approval`, { decision: 'reject' }),
  preflightCompensation: below('/compensation-preflight', {}),
  compensateOperation: below('/compensations', reason),
  createBulkAction: unnamed(
    () => '/bulk-actions',
    202,
    () => ({ action: 'cancel', filter: { type: 'approved' }, reason: 'r' }),
  ),
  listBulkActions: unnamed(() => '/bulk-actions'),
  getBulkAction: named(({ bulk }) => `/bulk-actions/${bulk}`),
  listBulkActionTargets: named(({ bulk }) => `/bulk-actions/${bulk}/targets`),
  startBulkAction: named(({ bulk }) => `/bulk-actions/${bulk}/start`, reason),
  abortBulkAction: named(({ bulk }) => `/bulk-actions/${bulk}/abort`, reason),
  listCases: unnamed(({ operation }) => `/reconciliation?operation_id=${operation}`),
  getCase: named((owned) => `/reconciliation/${owned.case}`),
  lookupCase: named((owned) => `/reconciliation/${owned.case}/lookup`, {}),
  resolveCase: named((owned) => `/reconciliation/${owned.case}/resolve`, {
    resolution: 'applied',
    evidence_ref: 'seen',
  }),
  // no key: the signature is what counts
  receiveCallback: unnamed(
    () => '/callbacks/grant',
    NOT_FOUND,
    () => ({}),
  ),
  listDeadLetters: unnamed(({ operation }) => `/dead-letters?operation_id=${operation}`),
  getDeadLetter: named(({ deadLetter }) => `/dead-letters/${deadLetter}`),
  discardDeadLetter: named(({ deadLetter }) => `/dead-letters/${deadLetter}/discard`, reason),
  listIncidents: unnamed(() => '/incidents'),
  getIncident: named(({ incident }) => `/incidents/${incident}`),
  resolveIncident: named(({ incident }) => `/incidents/${incident}/resolve`, reason),
  listWebhookDeliveries: below('/webhook-deliveries'),
  getWebhookDelivery: named(({ delivery }) => `/webhook-deliveries/${delivery}`),
  redeliverWebhook: named(({ delivery }) => `/webhook-deliveries/${delivery}/redeliver`, {}),
  getArtifact: named(({ published }) => `/operations/${published}/artifact`),
  // no key: the link is the proof, and only the owner was given it
  downloadArtifact: {
    ask: ({ download }) => ({ path: download.replace(/signature=.*/, `signature=${'A'.repeat(43)}`) }),
    stranger: 403,
    ownerAsks: ({ download }) => ({ path: download }),
  },
  listOperationTypes: unnamed(() => '/operation-types'),
  getOperationType: unnamed(() => '/operation-types/grant'),
  pauseOperationType: unnamed(
    () => '/operation-types/approved/pause',
    200,
    () => ({}),
  ),
  resumeOperationType: unnamed(
    () => '/operation-types/approved/resume',
    200,
    () => ({}),
  ),
  claimWork: held('/worker/claims', ({ worker }) => ({ ...remoteClaim, worker })),
  reportWork: held('/worker/results', ({ lease }) => ({ lease, results: [] })),
  giveBackWork: held('/worker/give-back', ({ lease }) => ({ lease })),
  beatWork: held('/worker/heartbeat', ({ worker }) => ({ worker, leases: [] })),
  listAudit: unnamed(() => '/audit'),
  listWorkers: unnamed(() => '/workers'),
  getHealthReport: unnamed(() => '/health-report'),
  getMetrics: unnamed(() => '/metrics'),
  getLiveness: unnamed(() => '/livez'),
  getReadiness: unnamed(() => '/readyz'),
  getProblem: unnamed(() => '/problems/forbidden'),
}
