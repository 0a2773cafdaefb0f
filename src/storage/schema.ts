/**
 * The tables as Drizzle knows them, for composed reads. What a column name cannot say, that is indexes, CHECKs, partitions
 * and triggers, stands in `drizzle/*.sql`; a test holds the two against each other column by column.
 * Times stay the database's text: a JS Date would drop its microseconds.
 */

import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  doublePrecision,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core'

export const tenants = pgTable('tenants', {
  id: integer().primaryKey().notNull(),
  name: text().notNull(),
  createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
})

export const apiKeys = pgTable(
  'api_keys',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().defaultRandom().notNull(),
    name: text().notNull(),
    keyHash: text('key_hash').notNull(),
    scopes: text().array().notNull(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    expiresAt: timestamp('expires_at', { withTimezone: true, mode: 'string' }),
    revokedAt: timestamp('revoked_at', { withTimezone: true, mode: 'string' }),
    lastUsedAt: timestamp('last_used_at', { withTimezone: true, mode: 'string' }),
    previousHash: text('previous_hash'),
    previousUntil: timestamp('previous_until', { withTimezone: true, mode: 'string' }),
    rotatedAt: timestamp('rotated_at', { withTimezone: true, mode: 'string' }),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'api_keys_pkey' })],
)

export const operationTypes = pgTable('operation_types', {
  name: text().primaryKey().notNull(),
  version: integer().notNull(),
  codeVersion: text('code_version').notNull(),
  updatedAt: timestamp('updated_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
  pausedAt: timestamp('paused_at', { withTimezone: true, mode: 'string' }),
  pausedBy: text('paused_by'),
  pausedReason: text('paused_reason'),
  pausedTenantId: integer('paused_tenant_id'),
})

export const operations = pgTable(
  'operations',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().notNull(),
    type: text().notNull(),
    typeVersion: integer('type_version').notNull(),
    codeVersion: text('code_version').notNull(),
    schemaVersion: integer('schema_version').default(1).notNull(),
    status: text().notNull(),
    version: bigint({ mode: 'number' }).default(1).notNull(),
    itemsTotal: bigint('items_total', { mode: 'number' }).default(0).notNull(),
    requestedBy: text('requested_by').notNull(),
    reason: text(),
    labels: jsonb().default({}).notNull(),
    priority: integer().default(0).notNull(),
    runAfter: timestamp('run_after', { withTimezone: true, mode: 'string' }),
    deadlineAt: timestamp('deadline_at', { withTimezone: true, mode: 'string' }),
    risk: text().notNull(),
    stopIf: jsonb('stop_if').default([]).notNull(),
    cancelRequestedAt: timestamp('cancel_requested_at', { withTimezone: true, mode: 'string' }),
    cancelRequestedBy: text('cancel_requested_by'),
    cancelReason: text('cancel_reason'),
    pauseRequestedAt: timestamp('pause_requested_at', { withTimezone: true, mode: 'string' }),
    pauseRequestedBy: text('pause_requested_by'),
    pauseReason: text('pause_reason'),
    approvalRequired: text('approval_required'),
    approvalDecision: text('approval_decision'),
    approvalBy: text('approval_by'),
    approvalAt: timestamp('approval_at', { withTimezone: true, mode: 'string' }),
    approvalNote: text('approval_note'),
    replayOf: uuid('replay_of'),
    rootId: uuid('root_id').notNull(),
    preflightId: uuid('preflight_id'),
    compensates: uuid(),
    after: jsonb().default([]).notNull(),
    afterWhen: text('after_when'),
    afterOpen: boolean('after_open').default(false).notNull(),
    awaited: boolean().default(false).notNull(),
    idempotencyKey: text('idempotency_key'),
    requestHash: text('request_hash'),
    traceparent: text(),
    error: jsonb(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    startedAt: timestamp('started_at', { withTimezone: true, mode: 'string' }),
    completedAt: timestamp('completed_at', { withTimezone: true, mode: 'string' }),
    resultSummary: jsonb('result_summary'),
    callbackUrl: text('callback_url'),
    itemsPurgedAt: timestamp('items_purged_at', { withTimezone: true, mode: 'string' }),
    ledgerPurgedAt: timestamp('ledger_purged_at', { withTimezone: true, mode: 'string' }),
    purgeOpen: boolean('purge_open').default(false).notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'operations_pkey' })],
)

export const operationDependencies = pgTable(
  'operation_dependencies',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    afterId: uuid('after_id').notNull(),
    endedAs: text('ended_as'),
  },
  (table) => [
    primaryKey({ columns: [table.tenantId, table.operationId, table.afterId], name: 'operation_dependencies_pkey' }),
  ],
)

export const operationItems = pgTable(
  'operation_items',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    ord: integer().notNull(),
    itemKey: text('item_key').notNull(),
    effectKey: text('effect_key').notNull(),
    input: jsonb().notNull(),
    inputHash: text('input_hash').notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.operationId, table.ord], name: 'operation_items_pkey' })],
)

export const operationShards = pgTable(
  'operation_shards',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    shard: integer().notNull(),
    type: text().notNull(),
    typeVersion: integer('type_version').notNull(),
    priority: integer().default(0).notNull(),
    fromOrd: integer('from_ord').notNull(),
    toOrd: integer('to_ord').notNull(),
    cursor: integer().notNull(),
    state: text().default('ready').notNull(),
    runAt: timestamp('run_at', { withTimezone: true, mode: 'string' }).defaultNow().notNull(),
    leaseOwner: uuid('lease_owner'),
    leaseEpoch: bigint('lease_epoch', { mode: 'number' }).default(0).notNull(),
    leaseExpiresAt: timestamp('lease_expires_at', { withTimezone: true, mode: 'string' }),
    leaseMs: integer('lease_ms'),
    claims: integer().default(0).notNull(),
    isolateUntil: integer('isolate_until'),
    suspectOrd: integer('suspect_ord'),
    suspectCrashes: integer('suspect_crashes').default(0).notNull(),
    stopRequested: text('stop_requested'),
    stopSeenAt: timestamp('stop_seen_at', { withTimezone: true, mode: 'string' }),
    version: bigint({ mode: 'number' }).default(0).notNull(),
    inFlight: integer('in_flight').default(0).notNull(),
    waiting: integer().default(0).notNull(),
    applied: bigint({ mode: 'number' }).default(0).notNull(),
    skipped: bigint({ mode: 'number' }).default(0).notNull(),
    failed: bigint({ mode: 'number' }).default(0).notNull(),
    uncertain: bigint({ mode: 'number' }).default(0).notNull(),
    failedTransient: bigint('failed_transient', { mode: 'number' }).default(0).notNull(),
    failedValidationRejected: bigint('failed_validation_rejected', { mode: 'number' }).default(0).notNull(),
    failedConflict: bigint('failed_conflict', { mode: 'number' }).default(0).notNull(),
    failedPolicyDenied: bigint('failed_policy_denied', { mode: 'number' }).default(0).notNull(),
    failedBugSuspected: bigint('failed_bug_suspected', { mode: 'number' }).default(0).notNull(),
    appliedAfterCancel: bigint('applied_after_cancel', { mode: 'number' }).default(0).notNull(),
    lastProgressAt: timestamp('last_progress_at', { withTimezone: true, mode: 'string' }),
    steps: text().array().default(sql`'{}'::text[]`).notNull(),
    compensating: boolean().default(false).notNull(),
    purged: boolean().default(false).notNull(),
    schemaVersion: integer('schema_version').default(1).notNull(),
    codeVersion: text('code_version'),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.operationId, table.shard], name: 'operation_shards_pkey' })],
)

export const effects = pgTable(
  'effects',
  {
    tenantId: integer('tenant_id').notNull(),
    effectKey: text('effect_key').notNull(),
    state: text().notNull(),
    send: integer().notNull(),
    operationId: uuid('operation_id').notNull(),
    shard: integer().notNull(),
    ord: integer().notNull(),
    step: text().default('').notNull(),
    attempt: integer().notNull(),
    leaseEpoch: bigint('lease_epoch', { mode: 'number' }).notNull(),
    itemKey: text('item_key').notNull(),
    inputHash: text('input_hash').notNull(),
    itemState: text('item_state'),
    itemClass: text('item_class'),
    effectRef: text('effect_ref'),
    was: text(),
    itemWas: text('item_was'),
    classWas: text('class_was'),
    claimedAt: timestamp('claimed_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    sendBy: timestamp('send_by', { withTimezone: true, mode: 'string' }).notNull(),
    updatedAt: timestamp('updated_at', { withTimezone: true, mode: 'string' }),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.effectKey], name: 'effects_pkey' })],
)

export const ledgerEntries = pgTable(
  'ledger_entries',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    ord: integer().notNull(),
    seq: bigint({ mode: 'number' }).default(sql`nextval('ledger_seq'::regclass)`).notNull(),
    itemKey: text('item_key').notNull(),
    step: text().default('').notNull(),
    attempt: integer().notNull(),
    state: text(),
    failureClass: text('failure_class'),
    reasonCode: text('reason_code'),
    message: text(),
    effectKey: text('effect_key').notNull(),
    send: integer(),
    inputHash: text('input_hash').notNull(),
    effectRef: text('effect_ref'),
    evidenceRef: text('evidence_ref'),
    source: text().notNull(),
    actor: text(),
    observedAt: timestamp('observed_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    workerId: uuid('worker_id'),
    codeVersion: text('code_version').notNull(),
    schemaVersion: integer('schema_version').default(1).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenantId, table.operationId, table.ord, table.seq], name: 'ledger_entries_pkey' }),
  ],
)

export const itemRetries = pgTable(
  'item_retries',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    ord: integer().notNull(),
    shard: integer().notNull(),
    effectKey: text('effect_key').notNull(),
    attempt: integer().notNull(),
    step: text().default('').notNull(),
    runAt: timestamp('run_at', { withTimezone: true, mode: 'string' }).defaultNow().notNull(),
    reason: text().notNull(),
    priorState: text('prior_state'),
    priorClass: text('prior_class'),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.operationId, table.ord], name: 'item_retries_pkey' })],
)

export const reconciliationCases = pgTable(
  'reconciliation_cases',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().defaultRandom().notNull(),
    operationId: uuid('operation_id').notNull(),
    shard: integer().notNull(),
    ord: integer().notNull(),
    type: text().notNull(),
    itemKey: text('item_key').notNull(),
    effectKey: text('effect_key').notNull(),
    send: integer().notNull(),
    cause: text().notNull(),
    openedAt: timestamp('opened_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
    dueAt: timestamp('due_at', { withTimezone: true, mode: 'string' })
      .default(sql`(clock_timestamp() + '24:00:00'::interval)`)
      .notNull(),
    lookups: integer().default(0).notNull(),
    nextLookupAt: timestamp('next_lookup_at', { withTimezone: true, mode: 'string' }),
    lastLookup: text('last_lookup'),
    closedAt: timestamp('closed_at', { withTimezone: true, mode: 'string' }),
    resolution: text(),
    resolvedBy: text('resolved_by'),
    resolutionSource: text('resolution_source'),
    evidenceRef: text('evidence_ref'),
    effectRef: text('effect_ref'),
    note: text(),
    step: text().default('').notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'reconciliation_cases_pkey' })],
)

export const deadLetters = pgTable(
  'dead_letters',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().defaultRandom().notNull(),
    operationId: uuid('operation_id').notNull(),
    ord: integer().notNull(),
    type: text().notNull(),
    itemKey: text('item_key').notNull(),
    effectKey: text('effect_key').notNull(),
    failureClass: text('failure_class').notNull(),
    reasonCode: text('reason_code'),
    message: text(),
    attempts: integer().notNull(),
    fingerprint: text().notNull(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    closedAt: timestamp('closed_at', { withTimezone: true, mode: 'string' }),
    closedBy: text('closed_by'),
    closeReason: text('close_reason'),
    closedAs: text('closed_as'),
    step: text().default('').notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'dead_letters_pkey' })],
)

export const incidentResolutions = pgTable(
  'incident_resolutions',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().defaultRandom().notNull(),
    fingerprint: text().notNull(),
    resolvedAt: timestamp('resolved_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    resolvedBy: text('resolved_by').notNull(),
    fixedIn: text('fixed_in'),
    reason: text().notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'incident_resolutions_pkey' })],
)

export const replayPreflights = pgTable(
  'replay_preflights',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().defaultRandom().notNull(),
    operationId: uuid('operation_id').notNull(),
    scope: jsonb().notNull(),
    facts: jsonb().notNull(),
    factsHash: text('facts_hash').notNull(),
    requestedBy: text('requested_by').notNull(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    expiresAt: timestamp('expires_at', { withTimezone: true, mode: 'string' }).notNull(),
    usedBy: uuid('used_by'),
    kind: text().default('replay').notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'replay_preflights_pkey' })],
)

export const callbackInbox = pgTable(
  'callback_inbox',
  {
    type: text().notNull(),
    eventId: text('event_id').notNull(),
    bodyHash: text('body_hash').notNull(),
    state: text(),
    effectKey: text('effect_key'),
    effectRef: text('effect_ref'),
    tenantId: integer('tenant_id'),
    operationId: uuid('operation_id'),
    shard: integer(),
    ord: integer(),
    itemKey: text('item_key'),
    send: integer(),
    receivedAt: timestamp('received_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    outcome: text(),
    caseId: uuid('case_id'),
    processedAt: timestamp('processed_at', { withTimezone: true, mode: 'string' }),
    dueAt: timestamp('due_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp() + interval '10 seconds'`)
      .notNull(),
  },
  (table) => [primaryKey({ columns: [table.type, table.eventId], name: 'callback_inbox_pkey' })],
)

export const operationEvents = pgTable(
  'operation_events',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    version: bigint({ mode: 'number' }).notNull(),
    kind: text().notNull(),
    status: text().notNull(),
    actor: text().notNull(),
    reason: text(),
    at: timestamp({ withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenantId, table.operationId, table.version], name: 'operation_events_pkey' }),
  ],
)

export const operationUploads = pgTable(
  'operation_uploads',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    id: uuid().notNull(),
    state: text().default('live').notNull(),
    fromOrd: integer('from_ord').notNull(),
    added: integer().default(0).notNull(),
    uploadKey: text('upload_key'),
    requestHash: text('request_hash'),
    requestedBy: text('requested_by').notNull(),
    startedAt: timestamp('started_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    lastSeenAt: timestamp('last_seen_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    completedAt: timestamp('completed_at', { withTimezone: true, mode: 'string' }),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.operationId, table.id], name: 'operation_uploads_pkey' })],
)

export const webhookDeliveries = pgTable(
  'webhook_deliveries',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().defaultRandom().notNull(),
    operationId: uuid('operation_id').notNull(),
    eventVersion: bigint('event_version', { mode: 'number' }).notNull(),
    event: text().notNull(),
    status: text().notNull(),
    facts: jsonb().notNull(),
    url: text().notNull(),
    origin: text().generatedAlwaysAs(sql`"substring"(url, '^[^:]+://[^/?#]+'::text)`).notNull(),
    body: text(),
    state: text().default('pending').notNull(),
    attempts: integer().default(0).notNull(),
    tries: integer().default(0).notNull(),
    nextAttemptAt: timestamp('next_attempt_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`),
    heldUntil: timestamp('held_until', { withTimezone: true, mode: 'string' }),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    deliveredAt: timestamp('delivered_at', { withTimezone: true, mode: 'string' }),
    lastStatus: integer('last_status'),
    lastError: text('last_error'),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'webhook_deliveries_pkey' })],
)

export const webhookAttempts = pgTable(
  'webhook_attempts',
  {
    tenantId: integer('tenant_id').notNull(),
    deliveryId: uuid('delivery_id').notNull(),
    attempt: integer().notNull(),
    at: timestamp({ withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
    status: integer(),
    error: text(),
    durationMs: integer('duration_ms'),
  },
  (table) => [
    primaryKey({ columns: [table.tenantId, table.deliveryId, table.attempt], name: 'webhook_attempts_pkey' }),
  ],
)

export const artifacts = pgTable(
  'artifacts',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().notNull(),
    operationId: uuid('operation_id').notNull(),
    type: text().notNull(),
    artifactKey: text('artifact_key').notNull(),
    name: text().notNull(),
    contentType: text('content_type').notNull(),
    object: text().notNull(),
    sizeBytes: bigint('size_bytes', { mode: 'number' }).notNull(),
    sha256: text().notNull(),
    publishedAt: timestamp('published_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    expiresAt: timestamp('expires_at', { withTimezone: true, mode: 'string' }).notNull(),
    supersededAt: timestamp('superseded_at', { withTimezone: true, mode: 'string' }),
    supersededBy: uuid('superseded_by'),
    supersedeReason: text('supersede_reason'),
    removedAt: timestamp('removed_at', { withTimezone: true, mode: 'string' }),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'artifacts_pkey' })],
)

export const artifactWorkspaces = pgTable(
  'artifact_workspaces',
  {
    tenantId: integer('tenant_id').notNull(),
    operationId: uuid('operation_id').notNull(),
    openedAt: timestamp('opened_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
    nextSweepAt: timestamp('next_sweep_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    sweptAt: timestamp('swept_at', { withTimezone: true, mode: 'string' }),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.operationId], name: 'artifact_workspaces_pkey' })],
)

export const workers = pgTable('workers', {
  id: uuid().primaryKey().notNull(),
  host: text().notNull(),
  pid: integer().notNull(),
  state: text().default('active').notNull(),
  codeVersion: text('code_version').notNull(),
  types: jsonb().notNull(),
  beatMs: integer('beat_ms').notNull(),
  startedAt: timestamp('started_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
  lastSeenAt: timestamp('last_seen_at', { withTimezone: true, mode: 'string' })
    .default(sql`clock_timestamp()`)
    .notNull(),
  tenantId: integer('tenant_id'),
  checkpointSchema: integer('checkpoint_schema').default(1).notNull(),
})

export const signingKeys = pgTable('signing_keys', {
  name: text().primaryKey().notNull(),
  key: text().notNull(),
  createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
})

export const typeMinutes = pgTable(
  'type_minutes',
  {
    type: text().notNull(),
    minute: timestamp({ withTimezone: true, mode: 'string' }).notNull(),
    workerId: uuid('worker_id').notNull(),
    calls: bigint({ mode: 'number' }).default(0).notNull(),
    errors: bigint({ mode: 'number' }).default(0).notNull(),
    items: bigint({ mode: 'number' }).default(0).notNull(),
    rejected: bigint({ mode: 'number' }).default(0).notNull(),
    retries: bigint({ mode: 'number' }).default(0).notNull(),
    latency: bigint({ mode: 'number' }).array().notNull(),
  },
  (table) => [primaryKey({ columns: [table.type, table.minute, table.workerId], name: 'type_minutes_pkey' })],
)

export const typeRates = pgTable('type_rates', {
  type: text().primaryKey().notNull(),
  nextAt: timestamp('next_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
})

export const examplePlaces = pgTable(
  'example_places',
  {
    tenantId: integer('tenant_id').notNull(),
    id: text().notNull(),
    name: text().notNull(),
    country: text().notNull(),
    lat: doublePrecision().notNull(),
    lng: doublePrecision().notNull(),
    operationId: uuid('operation_id'),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'example_places_pkey' })],
)

export const bulkActions = pgTable(
  'bulk_actions',
  {
    tenantId: integer('tenant_id').notNull(),
    id: uuid().notNull(),
    action: text().notNull(),
    status: text().notNull(),
    filter: jsonb().notNull(),
    scope: jsonb(),
    reason: text().notNull(),
    ratePerSecond: integer('rate_per_second').notNull(),
    requestedBy: text('requested_by').notNull(),
    requesterScopes: jsonb('requester_scopes').notNull(),
    idempotencyKey: text('idempotency_key'),
    requestHash: text('request_hash').notNull(),
    targets: integer().notNull(),
    done: integer().default(0).notNull(),
    refused: integer().default(0).notNull(),
    failed: integer().default(0).notNull(),
    skipped: integer().default(0).notNull(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    expiresAt: timestamp('expires_at', { withTimezone: true, mode: 'string' }),
    startedAt: timestamp('started_at', { withTimezone: true, mode: 'string' }),
    startedBy: text('started_by'),
    startReason: text('start_reason'),
    abortedAt: timestamp('aborted_at', { withTimezone: true, mode: 'string' }),
    abortedBy: text('aborted_by'),
    abortReason: text('abort_reason'),
    completedAt: timestamp('completed_at', { withTimezone: true, mode: 'string' }),
    nextAt: timestamp('next_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.id], name: 'bulk_actions_pkey' })],
)

export const bulkActionTargets = pgTable(
  'bulk_action_targets',
  {
    tenantId: integer('tenant_id').notNull(),
    bulkId: uuid('bulk_id').notNull(),
    ord: integer().notNull(),
    operationId: uuid('operation_id').notNull(),
    state: text().default('pending').notNull(),
    code: text(),
    detail: text(),
    blockedBy: jsonb('blocked_by').default([]).notNull(),
    preflightId: uuid('preflight_id'),
    resultOperationId: uuid('result_operation_id'),
    claims: integer().default(0).notNull(),
    dueAt: timestamp('due_at', { withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
    begunAt: timestamp('begun_at', { withTimezone: true, mode: 'string' }),
    at: timestamp({ withTimezone: true, mode: 'string' }),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.bulkId, table.ord], name: 'bulk_action_targets_pkey' })],
)

export const restores = pgTable(
  'restores',
  {
    restoredAt: timestamp('restored_at', { withTimezone: true, mode: 'string' })
      .default(sql`clock_timestamp()`)
      .notNull(),
    lostSince: timestamp('lost_since', { withTimezone: true, mode: 'string' }).notNull(),
    doubtUntil: timestamp('doubt_until', { withTimezone: true, mode: 'string' }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.restoredAt], name: 'restores_pkey' })],
)

export const auditEntries = pgTable(
  'audit_entries',
  {
    tenantId: integer('tenant_id').notNull(),
    at: timestamp({ withTimezone: true, mode: 'string' }).default(sql`clock_timestamp()`).notNull(),
    seq: bigint({ mode: 'number' }).default(sql`nextval('audit_entries_seq')`).notNull(),
    actor: text().notNull(),
    auth: text().notNull(),
    scope: text(),
    action: text().notNull(),
    subjectKind: text('subject_kind').notNull(),
    subjectId: text('subject_id').notNull(),
    reason: text(),
    requestId: text('request_id'),
    traceId: text('trace_id'),
    details: jsonb().$type<Record<string, unknown>>().default({}).notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.at, table.seq], name: 'audit_entries_pkey' })],
)
