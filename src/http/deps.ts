import type { FastifyBaseLogger } from 'fastify'
import type { RateLimits } from '../domain/rate-limit.ts'
import type { ArtifactView, DownloadView } from '../services/artifact-views.ts'
import type { BulkActionView, BulkTargetView } from '../services/bulk-action-views.ts'
import type { DeadLetterView, IncidentView, ResolvedIncidentView } from '../services/dead-letter-views.ts'
import type { CompensationPreflightView, PreflightView } from '../services/preflight-views.ts'
import type { Principal } from '../services/principal.ts'
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
} from '../services/requests.ts'
import type {
  AuditView,
  CallbackView,
  CaseView,
  CheckpointView,
  ClaimedWorkView,
  EventView,
  Gauge,
  HealthReportView,
  HeldLeaseView,
  HistoryView,
  ItemView,
  LedgerEntryView,
  OperationTypeView,
  OperationView,
  Page,
  ReadinessView,
  ReportedWorkView,
  WorkerView,
} from '../services/views.ts'
import type { WebhookDeliveryView } from '../services/webhook-views.ts'
import type { Tracing } from '../tracing.ts'
import type { Pressure } from './pressure.ts'
import type { TokenSettings } from './tokens.ts'

/**
 * All the http layer knows of the rest. Ids are uuids. Reads answer null for what does not exist in the caller's tenant;
 * writes throw `AppError` for it and for every other refusal.
 */
export interface Services {
  submitOperation(
    principal: Principal,
    request: SubmitRequest,
  ): Promise<{ operation: OperationView; replayed: boolean }>
  getOperation(principal: Principal, id: string): Promise<OperationView | null>
  listOperations(
    principal: Principal,
    filters: OperationSearch,
    page: PageRequest<OperationPosition>,
  ): Promise<Page<OperationView, OperationPosition>>
  cancelOperation(
    principal: Principal,
    id: string,
    request: CancelRequest,
  ): Promise<{ status: 200 | 202; operation: OperationView }>
  pauseOperation(
    principal: Principal,
    id: string,
    request: PauseRequest,
  ): Promise<{ status: 200 | 202; operation: OperationView }>
  resumeOperation(
    principal: Principal,
    id: string,
    request: PauseRequest,
  ): Promise<{ status: 200 | 202; operation: OperationView }>
  /** All rows or none; `replayed`: the idempotency key was used before with the same bytes. */
  uploadItems(
    principal: Principal,
    id: string,
    request: UploadRequest,
  ): Promise<{ added: number; total: number; replayed: boolean }>
  /** Closes a draft. */
  startDraft(principal: Principal, id: string, request: CancelRequest): Promise<OperationView>
  waitForChange(principal: Principal, id: string, request: WaitRequest): Promise<OperationView | null>

  listItems(
    principal: Principal,
    operationId: string,
    filters: ItemFilters,
    page: PageRequest<ItemPosition>,
  ): Promise<Page<ItemView, ItemPosition> | null>
  /** All of them, page by page; the next page is read only when the consumer asks for it. */
  streamItems(
    principal: Principal,
    operationId: string,
    filters: ItemFilters,
  ): Promise<AsyncIterable<ItemView[]> | null>
  listLedger(
    principal: Principal,
    operationId: string,
    page: PageRequest<LedgerPosition>,
  ): Promise<Page<LedgerEntryView, LedgerPosition> | null>
  streamLedger(principal: Principal, operationId: string): Promise<AsyncIterable<LedgerEntryView[]> | null>
  listCheckpoints(
    principal: Principal,
    operationId: string,
    page: PageRequest<CheckpointPosition>,
  ): Promise<Page<CheckpointView, CheckpointPosition> | null>
  listEvents(
    principal: Principal,
    operationId: string,
    page: PageRequest<EventPosition>,
  ): Promise<Page<EventView, EventPosition> | null>

  listCases(
    principal: Principal,
    filters: CaseFilters,
    page: PageRequest<CasePosition>,
  ): Promise<Page<CaseView, CasePosition>>
  getCase(principal: Principal, id: string): Promise<CaseView | null>
  lookupCase(principal: Principal, id: string): Promise<CaseView>
  resolveCase(principal: Principal, id: string, request: ResolveCaseRequest): Promise<CaseView>

  /** Needs no principal: the signature is the authentication. */
  receiveCallback(request: CallbackRequest): Promise<CallbackView>

  listDeadLetters(
    principal: Principal,
    filters: DeadLetterFilters,
    page: PageRequest<DeadLetterPosition>,
  ): Promise<Page<DeadLetterView, DeadLetterPosition>>
  getDeadLetter(principal: Principal, id: string): Promise<DeadLetterView | null>
  discardDeadLetter(principal: Principal, id: string, request: { reason: string }): Promise<DeadLetterView>
  /** An incident's id is its fingerprint, 32 hex digits. */
  listIncidents(
    principal: Principal,
    filters: IncidentFilters,
    page: PageRequest<IncidentPosition>,
  ): Promise<Page<IncidentView, IncidentPosition>>
  getIncident(principal: Principal, id: string): Promise<IncidentView | null>
  resolveIncident(principal: Principal, id: string, request: ResolveIncidentRequest): Promise<ResolvedIncidentView>
  listItemHistory(
    principal: Principal,
    operationId: string,
    itemKey: string,
    page: PageRequest<HistoryPosition>,
  ): Promise<Page<HistoryView, HistoryPosition>>

  preflightReplay(principal: Principal, operationId: string, request: PreflightRequest): Promise<PreflightView>
  replayOperation(
    principal: Principal,
    operationId: string,
    request: ReplayRequest,
  ): Promise<{ operation: OperationView; replayed: boolean }>
  preflightCompensation(
    principal: Principal,
    operationId: string,
    request: CompensationPreflightRequest,
  ): Promise<CompensationPreflightView>
  compensateOperation(
    principal: Principal,
    operationId: string,
    request: CompensateRequest,
  ): Promise<{ operation: OperationView; replayed: boolean }>
  decideApproval(principal: Principal, operationId: string, request: ApprovalRequest): Promise<OperationView>

  listWebhookDeliveries(
    principal: Principal,
    operationId: string,
    page: PageRequest<WebhookDeliveryPosition>,
  ): Promise<Page<WebhookDeliveryView, WebhookDeliveryPosition> | null>
  getWebhookDelivery(principal: Principal, id: string): Promise<WebhookDeliveryView | null>
  redeliverWebhook(principal: Principal, id: string): Promise<WebhookDeliveryView>
  /** `replayed`: the idempotency key was used before with the same body. */
  createBulkAction(
    principal: Principal,
    request: BulkActionRequest,
  ): Promise<{ action: BulkActionView; replayed: boolean }>
  listBulkActions(
    principal: Principal,
    filters: BulkActionFilters,
    page: PageRequest<BulkActionPosition>,
  ): Promise<Page<BulkActionView, BulkActionPosition>>
  getBulkAction(principal: Principal, id: string): Promise<BulkActionView | null>
  listBulkTargets(
    principal: Principal,
    id: string,
    state: string[],
    page: PageRequest<BulkTargetPosition>,
  ): Promise<Page<BulkTargetView, BulkTargetPosition> | null>
  startBulkAction(principal: Principal, id: string, request: { reason: string | null }): Promise<BulkActionView>
  abortBulkAction(principal: Principal, id: string, request: { reason: string }): Promise<BulkActionView>
  /** Throws for what does not exist, too: there are two kinds of nothing. */
  getArtifact(principal: Principal, operationId: string): Promise<ArtifactView>
  /** Nobody is asked who they are: the link is the proof. */
  openDownload(link: DownloadRequest): Promise<DownloadView>

  listOperationTypes(principal: Principal): Promise<OperationTypeView[]>
  getOperationType(principal: Principal, name: string): Promise<OperationTypeView | null>
  pauseOperationType(principal: Principal, name: string, request: { reason: string | null }): Promise<OperationTypeView>
  resumeOperationType(
    principal: Principal,
    name: string,
    request: { reason: string | null },
  ): Promise<OperationTypeView>
  listAudit(
    principal: Principal,
    filters: AuditFilters,
    page: PageRequest<AuditPosition>,
  ): Promise<Page<AuditView, AuditPosition>>
  /** All of them, page by page; the next page is read only when the consumer asks for it. */
  streamAudit(principal: Principal, filters: AuditFilters): AsyncIterable<AuditView[]>
  listWorkers(principal: Principal): Promise<WorkerView[]>
  /** Waits up to `seconds`; registers only, where the request names no worker. */
  claimWork(principal: Principal, request: ClaimWorkRequest): Promise<ClaimedWorkView>
  reportWork(principal: Principal, request: ReportWorkRequest): Promise<ReportedWorkView>
  giveBackWork(principal: Principal, request: GiveBackWorkRequest): Promise<ReportedWorkView>
  beatWork(principal: Principal, request: WorkHeartbeatRequest): Promise<HeldLeaseView[]>
  healthReport(principal: Principal): Promise<HealthReportView>

  /** `keyHash` is the hex SHA-256 of the bearer key; answers with the stored hash, which http compares in constant time. */
  authenticate(keyHash: string): Promise<{ principal: Principal; keyHash: string } | null>
  readiness(): Promise<ReadinessView>
  /** The tenant that a token names; null: there is none. */
  findTenant(name: string): Promise<number | null>
  /** Gauges for `/metrics`: of the tenant or, with `metrics:service`, of the whole service; cached for some seconds by the caller. */
  measure(principal: Principal): Promise<Gauge[]>
}

/** Owned by the entry file: it says `draining` first, serves on for the grace time, then closes the server. */
export interface ServerState {
  draining: boolean
}

export interface HttpConfig {
  auth: 'keys' | 'off'
  /** Of whom tokens are taken besides keys; null or absent: of nobody. */
  jwt?: TokenSettings | null
  /** Without a slash at the end; null: URLs in answers are relative. */
  publicUrl: string | null
  /** Absent or null: nobody is limited. */
  rateLimits?: RateLimits | null
  /** Addresses and networks whose `X-Forwarded-For` is believed. */
  trustedProxies?: readonly string[]
}

export interface ServerDeps {
  services: Services
  config: HttpConfig
  state: ServerState
  /** Absent: nothing is refused for it. */
  pressure?: Pressure
  /** A pino logger. */
  log: FastifyBaseLogger
  /** Absent: nobody traces. */
  tracing?: Tracing
  /** Where the built console is; absent: where the build puts it. */
  consoleDirectory?: string
}
