/** Which tables have tenants' rows, and what of keys and statements is not held to a tenant, each with its reason. */

export const TENANT_TABLES: ReadonlySet<string> = new Set([
  'api_keys',
  'artifact_workspaces',
  'artifacts',
  'audit_entries',
  'bulk_action_targets',
  'bulk_actions',
  'callback_inbox',
  'dead_letter_standings',
  'dead_letters',
  'effects',
  'example_places',
  'incident_resolutions',
  'item_retries',
  'ledger_entries',
  'operation_dependencies',
  'operation_events',
  'operation_items',
  'operation_shards',
  'operation_uploads',
  'operations',
  'reconciliation_cases',
  'replay_preflights',
  'webhook_attempts',
  'webhook_deliveries',
])

/** Reason → `file function`, below src/. */
export const OVER_ALL_TENANTS: ReadonlyMap<string, readonly string[]> = new Map([
  ['who is asking is not known yet: the key says which tenant it is', ['storage/api-keys.ts findApiKey']],
  [
    'of the operator, on the command line, who has the database',
    [
      'storage/api-keys.ts listApiKeys',
      'storage/api-keys.ts revokeApiKey',
      'storage/api-keys.ts rotateApiKey',
      'storage/restores.ts recordRestore',
    ],
  ],
  [
    'the signature of a download link is the right to it, and names the artifact alone',
    ['storage/artifacts.ts readArtifact'],
  ],
  [
    'an event of a provider belongs to the type; the tenant follows from its effect',
    ['storage/callbacks.ts keepOutcome', 'storage/callbacks.ts readCallback'],
  ],
  [
    'the claim: workers serve all tenants, in turn, or one where a claim names it',
    [
      'storage/run/claim-shards.ts claimExpiredShards',
      'storage/run/claim-shards.ts claimReadyShards',
      'storage/run/claim-shards.ts othersWait',
    ],
  ],
  [
    'a sweep, which finds what is due by a small partial index over all tenants; each thing found names its own from there on',
    [
      'storage/artifacts.ts readEndedArtifacts',
      'storage/bulk-targets.ts claimBulkTargets',
      'storage/callbacks.ts takePendingCallbacks',
      'storage/checkpoints.ts readOpenCheckpoints',
      'storage/dependencies.ts readOverdueDependents',
      'storage/lookups.ts readExplainedDoubts',
      'storage/lookups.ts takeDueLookups',
      'storage/purge-rows.ts readMarked',
      'storage/retention.ts readAgedChains',
      'storage/settle.ts readUnsettled',
      'storage/stop-conditions.ts readArmedOperations',
      'storage/stops.ts readPassedDeadlines',
      'storage/upload-tails.ts takeStaleUpload',
      'storage/webhook-outbox.ts failWornOut',
      'storage/webhook-outbox.ts isDue',
      'storage/webhook-outbox.ts readOrigins',
      'storage/webhook-outbox.ts takeOf',
    ],
  ],
  [
    'housekeeping forgets by age, whosever it was',
    [
      'storage/audit.ts purgeAudit',
      'storage/housekeeping.ts forgetOldCallbacks',
      'storage/housekeeping.ts forgetOldDryRuns',
      'storage/housekeeping.ts forgetUnusedPreflights',
      'storage/webhook-outbox.ts forgetOldDeliveries',
    ],
  ],
  ['figures of the whole service, for its operator; no label names a tenant', ['storage/gauges.ts readTenantIds']],
])

/** Reason → tables without the column, or in which it may be missing. */
export const SERVICE_TABLES: ReadonlyMap<string, readonly string[]> = new Map([
  ['it names the tenants', ['tenants']],
  ['types belong to the service', ['operation_types', 'type_minutes', 'type_rates']],
  ['its processes do, and what they have in common', ['restores', 'signing_keys', 'workers']],
  ['an event of a provider is kept before it is known whose it is', ['callback_inbox']],
])

/** Reason → unique indexes and keys of tenants' tables whose first column is another one. */
export const KEYS_WITHOUT_TENANT: ReadonlyMap<string, readonly string[]> = new Map([
  ['a key is looked up by its hash before its tenant is known', ['api_keys_hash', 'api_keys_previous_hash']],
])

/** Reason → further indexes of tenants' tables whose first column is another one. */
export const INDEXES_WITHOUT_TENANT: ReadonlyMap<string, readonly string[]> = new Map([
  [
    'a sweep over all tenants finds by it what is due',
    [
      'artifact_workspaces_due',
      'artifacts_kept',
      'artifacts_superseded',
      'bulk_actions_due',
      'operations_deadline',
      'operations_items_kept',
      'operations_ledger_kept',
      'reconciliation_cases_lookup',
      'webhook_deliveries_due',
      'webhook_deliveries_held',
      'webhook_deliveries_origin',
    ],
  ],
  [
    'housekeeping finds by it what is old',
    ['bulk_actions_expired', 'replay_preflights_unused', 'webhook_deliveries_ended'],
  ],
  ['figures of the service are counted by it', ['webhook_deliveries_undelivered']],
  ['a download link names the artifact alone', ['artifacts_link']],
  ['GIN: it is combined with the index of the tenant, or its rows are filtered', ['operations_labels']],
])
