/**
 * The use cases of the api, bound to one context: the list that `http/deps.ts` asks for. What is shared between requests is
 * made here once: the batchers of reads and submissions, the pulse of types, the waiters for changes, and
 * the figures that are dear to measure.
 */

import { AppError } from '../domain/errors.ts'
import { NO_OBJECT_STORE } from '../objects/object-store.ts'
import type { OperationState } from '../storage/operation-state.ts'
import { type Downloads, getArtifact, openDownload } from './artifacts.ts'
import { listAudit, streamAudit } from './audit.ts'
import { authenticate } from './authenticate.ts'
import { abortBulk, getBulkAction, listBulkActions, listBulkTargets, startBulk } from './bulk-actions.ts'
import { claimWork } from './claim-work.ts'
import { compensateOperation } from './compensate.ts'
import type { ServiceContext } from './context.ts'
import { gaugesInRanges } from './count-ranges.ts'
import { createBulkAction } from './create-bulk-action.ts'
import { discard, getDeadLetter, listDeadLetters } from './dead-letters.ts'
import { decideApproval } from './decide-approval.ts'
import { getOperation, openStateReader } from './get-operation.ts'
import { openHealthGauges } from './health-gauges.ts'
import { healthReport } from './health-report.ts'
import { getIncident, listIncidents, resolveIncident } from './incidents.ts'
import { listItemHistory } from './item-history.ts'
import { openKeyUses } from './key-uses.ts'
import { listOperations } from './list-operations.ts'
import { listCheckpoints, listEvents, listItems, listLedger, streamItems, streamLedger } from './list-outcomes.ts'
import { listWorkers } from './list-workers.ts'
import { lookupCase } from './lookup-case.ts'
import { measure, measureOperations } from './measure.ts'
import { getOperationType, listOperationTypes, pauseOperationType, resumeOperationType } from './operation-types.ts'
import { operationView } from './operation-view.ts'
import { preflightCompensation } from './preflight-compensation.ts'
import { preflightReplay } from './preflight-replay.ts'
import type { Principal } from './principal.ts'
import { getCase, listCases } from './read-cases.ts'
import { readiness } from './readiness.ts'
import { receiveCallback } from './receive-callback.ts'
import { replayOperation } from './replay.ts'
import { giveBackWork, reportWork } from './report-work.ts'
import type {
  ApprovalRequest,
  AuditFilters,
  AuditPosition,
  BulkActionFilters,
  BulkActionPosition,
  BulkActionRequest,
  BulkTargetPosition,
  CallbackRequest,
  CancelRequest,
  CaseFilters,
  CasePosition,
  CheckpointPosition,
  ClaimWorkRequest,
  CompensateRequest,
  CompensationPreflightRequest,
  DeadLetterFilters,
  DeadLetterPosition,
  DownloadRequest,
  EventPosition,
  GiveBackWorkRequest,
  HistoryPosition,
  IncidentFilters,
  IncidentPosition,
  ItemFilters,
  ItemPosition,
  LedgerPosition,
  OperationPosition,
  OperationSearch,
  PageRequest,
  PauseRequest,
  PreflightRequest,
  ReplayRequest,
  ReportWorkRequest,
  ResolveCaseRequest,
  ResolveIncidentRequest,
  SubmitRequest,
  UploadRequest,
  WaitRequest,
  WebhookDeliveryPosition,
  WorkHeartbeatRequest,
} from './requests.ts'
import { noOperation } from './require-operation.ts'
import { resolveCase } from './resolve-case.ts'
import { startDraft } from './start-draft.ts'
import { cancelOperation, pauseOperation, resumeOperation } from './stop.ts'
import { openSubmissionWriter } from './submission-writer.ts'
import { submitOperation } from './submit.ts'
import { openTenantNames } from './tenants.ts'
import { openPulseReader } from './type-pulse.ts'
import { uploadItems } from './upload-items.ts'
import type { CaseView, OperationView } from './views.ts'
import { changedSince, openChangeWaiter } from './wait-for-change.ts'
import { getWebhookDelivery, listWebhookDeliveries, redeliverWebhook } from './webhook-deliveries.ts'
import { beatWork } from './worker-heartbeat.ts'
import { openTokenKey } from './worker-tokens.ts'

export const assembleServices = (
  base: ServiceContext,
  downloads: Downloads = { objects: NO_OBJECT_STORE, secret: null },
) => {
  const readState = openStateReader(base)
  const context = {
    ...base,
    downloads: downloads.secret !== null,
    readState,
    readPulse: openPulseReader(base),
    writeSubmission: openSubmissionWriter(base),
  }
  const waiter = openChangeWaiter(context)
  const work = { ...base, tokenKey: openTokenKey(base) }
  const health = openHealthGauges(context)
  const keyUses = openKeyUses(base)
  const tenantNames = openTenantNames(base.database)

  const view = async (state: OperationState): Promise<OperationView> =>
    operationView(state, context.types.get(state.type), await context.readPulse(state.type, state.typeVersion))

  const shown = async (principal: Principal, id: string): Promise<OperationView> => {
    const operation = await getOperation(context, principal, id)
    if (!operation) throw noOperation()
    return operation
  }

  const shownCase = async (principal: Principal, id: string): Promise<CaseView> => {
    const found = await getCase(context, principal, id)
    if (!found) throw new AppError('case-not-found', 'there is no such reconciliation case')
    return found
  }

  return {
    async submitOperation(principal: Principal, request: SubmitRequest) {
      const submitted = await submitOperation(context, principal, request)
      const { replayed } = submitted
      return 'id' in submitted
        ? { operation: await shown(principal, submitted.id), replayed }
        : { operation: await view(submitted.state), replayed }
    },
    getOperation: (principal: Principal, id: string) => getOperation(context, principal, id),
    listOperations: (principal: Principal, filters: OperationSearch, page: PageRequest<OperationPosition>) =>
      listOperations(context, principal, filters, page),
    async cancelOperation(principal: Principal, id: string, request: CancelRequest) {
      const { status } = await cancelOperation(context, principal, id, request)
      return { status, operation: await shown(principal, id) }
    },
    async pauseOperation(principal: Principal, id: string, request: PauseRequest) {
      const { status } = await pauseOperation(context, principal, id, request)
      return { status, operation: await shown(principal, id) }
    },
    uploadItems: (principal: Principal, id: string, request: UploadRequest) =>
      uploadItems(context, principal, id, request),
    async startDraft(principal: Principal, id: string, request: CancelRequest) {
      await startDraft(context, principal, id, request)
      return shown(principal, id)
    },
    async resumeOperation(principal: Principal, id: string, request: PauseRequest) {
      const { status } = await resumeOperation(context, principal, id, request)
      return { status, operation: await shown(principal, id) }
    },
    async waitForChange(principal: Principal, id: string, { seconds, seenVersion, signal }: WaitRequest) {
      const state = await waiter.wait(
        { tenantId: principal.tenantId, id },
        { ms: seconds * 1000, until: changedSince(seenVersion), signal },
      )
      return state ? view(state) : null
    },
    listItems: (principal: Principal, id: string, filters: ItemFilters, page: PageRequest<ItemPosition>) =>
      listItems(context, principal, id, filters, page),
    streamItems: (principal: Principal, id: string, filters: ItemFilters) =>
      streamItems(context, principal, id, filters),
    listLedger: (principal: Principal, id: string, page: PageRequest<LedgerPosition>) =>
      listLedger(context, principal, id, page),
    streamLedger: (principal: Principal, id: string) => streamLedger(context, principal, id),
    listCheckpoints: (principal: Principal, id: string, page: PageRequest<CheckpointPosition>) =>
      listCheckpoints(context, principal, id, page),
    listEvents: (principal: Principal, id: string, page: PageRequest<EventPosition>) =>
      listEvents(context, principal, id, page),
    listCases: (principal: Principal, filters: CaseFilters, page: PageRequest<CasePosition>) =>
      listCases(context, principal, filters, page),
    getCase: (principal: Principal, id: string) => getCase(context, principal, id),
    async lookupCase(principal: Principal, id: string) {
      await lookupCase(context, principal, id)
      return shownCase(principal, id)
    },
    async resolveCase(principal: Principal, id: string, request: ResolveCaseRequest) {
      await resolveCase(context, principal, id, request)
      return shownCase(principal, id)
    },
    receiveCallback: (request: CallbackRequest) => receiveCallback(context, request),
    listDeadLetters: (principal: Principal, filters: DeadLetterFilters, page: PageRequest<DeadLetterPosition>) =>
      listDeadLetters(context, principal, filters, page),
    getDeadLetter: (principal: Principal, id: string) => getDeadLetter(context, principal, id),
    discardDeadLetter: (principal: Principal, id: string, request: { reason: string }) =>
      discard(context, principal, id, request),
    listIncidents: (principal: Principal, filters: IncidentFilters, page: PageRequest<IncidentPosition>) =>
      listIncidents(context, principal, filters, page),
    getIncident: (principal: Principal, id: string) => getIncident(context, principal, id),
    resolveIncident: (principal: Principal, id: string, request: ResolveIncidentRequest) =>
      resolveIncident(context, principal, id, request),
    listItemHistory: (principal: Principal, id: string, itemKey: string, page: PageRequest<HistoryPosition>) =>
      listItemHistory(context, principal, id, itemKey, page),
    preflightReplay: (principal: Principal, id: string, request: PreflightRequest) =>
      preflightReplay(context, principal, id, request),
    async replayOperation(principal: Principal, id: string, request: ReplayRequest) {
      const replay = await replayOperation(context, principal, id, request)
      return { operation: await shown(principal, replay.id), replayed: replay.replayed }
    },
    preflightCompensation: (principal: Principal, id: string, request: CompensationPreflightRequest) =>
      preflightCompensation(context, principal, id, request),
    async compensateOperation(principal: Principal, id: string, request: CompensateRequest) {
      const compensation = await compensateOperation(context, principal, id, request)
      return { operation: await shown(principal, compensation.id), replayed: compensation.replayed }
    },
    async decideApproval(principal: Principal, id: string, request: ApprovalRequest) {
      await decideApproval(context, principal, id, request)
      return shown(principal, id)
    },
    listWebhookDeliveries: (principal: Principal, id: string, page: PageRequest<WebhookDeliveryPosition>) =>
      listWebhookDeliveries(context, principal, id, page),
    getWebhookDelivery: (principal: Principal, id: string) => getWebhookDelivery(context, principal, id),
    redeliverWebhook: (principal: Principal, id: string) => redeliverWebhook(context, principal, id),
    createBulkAction: (principal: Principal, request: BulkActionRequest) =>
      createBulkAction(context, principal, request),
    listBulkActions: (principal: Principal, filters: BulkActionFilters, page: PageRequest<BulkActionPosition>) =>
      listBulkActions(context, principal, filters, page),
    getBulkAction: (principal: Principal, id: string) => getBulkAction(context, principal, id),
    listBulkTargets: (principal: Principal, id: string, state: string[], page: PageRequest<BulkTargetPosition>) =>
      listBulkTargets(context, principal, id, state, page),
    startBulkAction: (principal: Principal, id: string, request: { reason: string | null }) =>
      startBulk(context, principal, id, request),
    abortBulkAction: (principal: Principal, id: string, request: { reason: string }) =>
      abortBulk(context, principal, id, request),
    getArtifact: (principal: Principal, id: string) => getArtifact({ ...base, downloads }, principal, id),
    openDownload: (link: DownloadRequest) => openDownload({ ...base, downloads }, link),
    listOperationTypes: (principal: Principal) => listOperationTypes(context, principal),
    getOperationType: (principal: Principal, name: string) => getOperationType(context, principal, name),
    pauseOperationType: (principal: Principal, name: string, request: { reason: string | null }) =>
      pauseOperationType(context, principal, name, request),
    resumeOperationType: (principal: Principal, name: string, request: { reason: string | null }) =>
      resumeOperationType(context, principal, name, request),
    listAudit: (principal: Principal, filters: AuditFilters, page: PageRequest<AuditPosition>) =>
      listAudit(context, principal, filters, page),
    streamAudit: (principal: Principal, filters: AuditFilters) => streamAudit(context, principal, filters),
    listWorkers: (principal: Principal) => listWorkers(context, principal),
    claimWork: (principal: Principal, request: ClaimWorkRequest) => claimWork(work, principal, request),
    reportWork: (principal: Principal, request: ReportWorkRequest) => reportWork(work, principal, request),
    giveBackWork: (principal: Principal, request: GiveBackWorkRequest) => giveBackWork(work, principal, request),
    beatWork: (principal: Principal, request: WorkHeartbeatRequest) => beatWork(work, principal, request),
    healthReport: (principal: Principal) => healthReport(context, principal),
    authenticate: (keyHash: string) => authenticate({ ...base, keyUses }, keyHash),
    findTenant: (name: string) => tenantNames.find(name),
    readiness: () => readiness(context),
    async measure(principal: Principal) {
      const gauges = principal.scopes.includes('metrics:service')
        ? [...(await measure(context)), ...(await health.read())]
        : await measureOperations(context, principal.tenantId)
      return principal.scopes.includes('ledger:read') ? gauges : gaugesInRanges(gauges, context.types)
    },
    async close() {
      waiter.close()
      await keyUses.close()
    },
  }
}
