-- opledger, first schema. tenant_id leads every key of a tenant's rows. No foreign keys between operations and their
-- shards, items, effects and ledger: they would lock. All facts are in database time.

CREATE TABLE tenants (
  id integer PRIMARY KEY,
  name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO tenants (id, name) VALUES (1, 'default');
--> statement-breakpoint
CREATE TABLE api_keys (
  tenant_id integer NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  name text NOT NULL,
  key_hash text NOT NULL,
  scopes text[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);
--> statement-breakpoint
-- What the operator has installed, and the kill switch. Global: types belong to the service, not to a tenant.
CREATE TABLE operation_types (
  name text PRIMARY KEY,
  version integer NOT NULL,
  code_version text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  paused_at timestamptz,
  paused_by text,
  paused_reason text
);
--> statement-breakpoint
CREATE TABLE operations (
  tenant_id integer NOT NULL,
  id uuid NOT NULL,
  type text NOT NULL,
  type_version integer NOT NULL,
  code_version text NOT NULL,
  schema_version integer NOT NULL DEFAULT 1,
  status text NOT NULL,
  version bigint NOT NULL DEFAULT 1,
  items_total bigint NOT NULL DEFAULT 0,
  requested_by text NOT NULL,
  reason text,
  labels jsonb NOT NULL DEFAULT '{}',
  priority integer NOT NULL DEFAULT 0,
  run_after timestamptz,
  deadline_at timestamptz,
  risk text NOT NULL,
  stop_if jsonb NOT NULL DEFAULT '[]',
  cancel_requested_at timestamptz,
  cancel_requested_by text,
  cancel_reason text,
  pause_requested_at timestamptz,
  pause_requested_by text,
  pause_reason text,
  approval_required text,
  approval_decision text,
  approval_by text,
  approval_at timestamptz,
  approval_note text,
  replay_of uuid,
  root_id uuid NOT NULL,
  preflight_id uuid,
  compensates uuid,
  after jsonb NOT NULL DEFAULT '[]',
  idempotency_key text,
  request_hash text,
  traceparent text,
  error jsonb,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz,
  completed_at timestamptz,
  result_summary jsonb,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT operations_status CHECK (status IN ('draft', 'awaiting_approval', 'pending', 'running', 'pause_requested',
    'paused', 'cancel_requested', 'reconciliation_required', 'succeeded', 'partially_succeeded', 'failed', 'cancelled',
    'completed_after_cancel')),
  CONSTRAINT operations_risk CHECK (risk IN ('low', 'medium', 'high')),
  CONSTRAINT operations_final CHECK ((completed_at IS NOT NULL) = (status IN ('succeeded', 'partially_succeeded',
    'failed', 'cancelled', 'completed_after_cancel'))),
  CONSTRAINT operations_cancelled CHECK (status NOT IN ('cancel_requested', 'cancelled', 'completed_after_cancel')
    OR cancel_requested_at IS NOT NULL),
  CONSTRAINT operations_paused CHECK (status NOT IN ('pause_requested', 'paused') OR pause_requested_at IS NOT NULL)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX operations_idempotency_key ON operations (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX operations_newest ON operations (tenant_id, created_at DESC, id DESC);
CREATE INDEX operations_replay_of ON operations (tenant_id, replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX operations_open ON operations (tenant_id, id) WHERE completed_at IS NULL;
CREATE INDEX operations_deadline ON operations (deadline_at) WHERE completed_at IS NULL AND deadline_at IS NOT NULL;
CREATE INDEX operations_cancelled_at ON operations (tenant_id, cancel_requested_at) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX operations_completed_at ON operations (tenant_id, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX operations_labels ON operations USING gin (labels jsonb_path_ops) WHERE labels <> '{}';
--> statement-breakpoint
CREATE TABLE operation_items (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  ord integer NOT NULL,
  item_key text NOT NULL,
  effect_key text NOT NULL,
  input jsonb NOT NULL,
  input_hash text NOT NULL,
  PRIMARY KEY (tenant_id, operation_id, ord)
);
CREATE UNIQUE INDEX operation_items_key ON operation_items (tenant_id, operation_id, item_key);
--> statement-breakpoint
CREATE TABLE operation_shards (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  shard integer NOT NULL,
  type text NOT NULL,
  type_version integer NOT NULL,
  priority integer NOT NULL DEFAULT 0,
  from_ord integer NOT NULL,
  to_ord integer NOT NULL,
  cursor integer NOT NULL,
  state text NOT NULL DEFAULT 'ready',
  run_at timestamptz NOT NULL DEFAULT now(),
  lease_owner uuid,
  lease_epoch bigint NOT NULL DEFAULT 0,
  lease_expires_at timestamptz,
  lease_ms integer,
  claims integer NOT NULL DEFAULT 0,
  isolate_until integer,
  suspect_ord integer,
  suspect_crashes integer NOT NULL DEFAULT 0,
  stop_requested text,
  stop_seen_at timestamptz,
  version bigint NOT NULL DEFAULT 0,
  in_flight integer NOT NULL DEFAULT 0,
  waiting integer NOT NULL DEFAULT 0,
  applied bigint NOT NULL DEFAULT 0,
  skipped bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  uncertain bigint NOT NULL DEFAULT 0,
  failed_transient bigint NOT NULL DEFAULT 0,
  failed_validation_rejected bigint NOT NULL DEFAULT 0,
  failed_conflict bigint NOT NULL DEFAULT 0,
  failed_policy_denied bigint NOT NULL DEFAULT 0,
  failed_bug_suspected bigint NOT NULL DEFAULT 0,
  applied_after_cancel bigint NOT NULL DEFAULT 0,
  last_progress_at timestamptz,
  PRIMARY KEY (tenant_id, operation_id, shard),
  CONSTRAINT operation_shards_state CHECK (state IN ('ready', 'leased', 'done')),
  CONSTRAINT operation_shards_leased CHECK ((state = 'leased') = (lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT operation_shards_stop CHECK (stop_requested IN ('pause', 'cancel')),
  CONSTRAINT operation_shards_in_flight CHECK (in_flight = 0 OR state = 'leased'),
  CONSTRAINT operation_shards_range CHECK (from_ord <= cursor AND cursor <= to_ord),
  CONSTRAINT operation_shards_counts CHECK (in_flight >= 0 AND waiting >= 0 AND applied >= 0 AND skipped >= 0 AND failed >= 0
    AND uncertain >= 0 AND applied + skipped + failed + uncertain <= to_ord - from_ord),
  CONSTRAINT operation_shards_failures CHECK (failed = failed_transient + failed_validation_rejected + failed_conflict
    + failed_policy_denied + failed_bug_suspected)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- lease_expires_at is in no index on purpose: renewals stay HOT
CREATE INDEX operation_shards_ready ON operation_shards (tenant_id, priority DESC, run_at) WHERE state = 'ready';
CREATE INDEX operation_shards_leased ON operation_shards (tenant_id, operation_id, shard) WHERE state = 'leased';
--> statement-breakpoint
-- What is true now of every effect key.
CREATE TABLE effects (
  tenant_id integer NOT NULL,
  effect_key text NOT NULL,
  state text NOT NULL,
  send integer NOT NULL,
  operation_id uuid NOT NULL,
  shard integer NOT NULL,
  ord integer NOT NULL,
  step text NOT NULL DEFAULT '',
  attempt integer NOT NULL,
  lease_epoch bigint NOT NULL,
  item_key text NOT NULL,
  input_hash text NOT NULL,
  item_state text,
  item_class text,
  effect_ref text,
  -- the state before the last change: lets one upsert tell its counters what moved
  was text,
  item_was text,
  class_was text,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  send_by timestamptz NOT NULL,
  updated_at timestamptz,
  PRIMARY KEY (tenant_id, effect_key),
  CONSTRAINT effects_state CHECK (state IN ('intent', 'applied', 'uncertain', 'absent', 'compensated')),
  CONSTRAINT effects_item_state CHECK (item_state IN ('applied', 'skipped', 'failed', 'uncertain')),
  CONSTRAINT effects_send CHECK (send >= 1)
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX effects_intent ON effects (tenant_id, operation_id, shard) WHERE state = 'intent';
--> statement-breakpoint
-- What happened. Append-only; partitioned by month of the operation's UUIDv7, so that old months are dropped, not deleted.
CREATE SEQUENCE ledger_seq;
CREATE TABLE ledger_entries (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  ord integer NOT NULL,
  seq bigint NOT NULL DEFAULT nextval('ledger_seq'),
  item_key text NOT NULL,
  step text NOT NULL DEFAULT '',
  attempt integer NOT NULL,
  -- null: an observation that changes no item, such as late evidence for an older send
  state text,
  failure_class text,
  reason_code text,
  message text,
  effect_key text NOT NULL,
  send integer,
  input_hash text NOT NULL,
  effect_ref text,
  evidence_ref text,
  source text NOT NULL,
  actor text,
  observed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  worker_id uuid,
  code_version text NOT NULL,
  schema_version integer NOT NULL DEFAULT 1,
  PRIMARY KEY (tenant_id, operation_id, ord, seq),
  CONSTRAINT ledger_entries_state CHECK (state IN ('applied', 'skipped', 'failed', 'uncertain')),
  CONSTRAINT ledger_entries_class CHECK (failure_class IN ('transient', 'validation_rejected', 'conflict',
    'ambiguous_effect', 'policy_denied', 'bug_suspected')),
  CONSTRAINT ledger_entries_classified CHECK (state IS NULL OR (state IN ('failed', 'uncertain')) = (failure_class IS NOT NULL)),
  CONSTRAINT ledger_entries_source CHECK (source IN ('worker', 'late_worker', 'recovery', 'lookup', 'callback', 'operator'))
) PARTITION BY RANGE (operation_id);
CREATE INDEX ledger_entries_not_applied ON ledger_entries (tenant_id, operation_id, ord) WHERE state <> 'applied';
--> statement-breakpoint
CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('opledger.retention', true) = 'on' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'the ledger is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', HINT = 'Retention sets opledger.retention = on for its own transaction.';
END $$;
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
--> statement-breakpoint
-- The first uuid of a point in time: 48 bits of milliseconds, as RFC 9562 lays out version 7.
CREATE FUNCTION uuid_v7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
-- Makes the partitions from `first` on for `months` months; a partition has the trigger too, against statements that name it directly.
CREATE FUNCTION ensure_ledger_partitions(first timestamptz, months integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  month timestamptz := date_trunc('month', first AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
  name text;
  made integer := 0;
BEGIN
  FOR i IN 1..months LOOP
    name := 'ledger_entries_' || to_char(month AT TIME ZONE 'UTC', 'YYYYMM');
    IF to_regclass(name) IS NULL THEN
      EXECUTE format('CREATE TABLE %I PARTITION OF ledger_entries FOR VALUES FROM (%L) TO (%L)', name,
        uuid_v7_floor(month), uuid_v7_floor(((month AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC'));
      EXECUTE format('CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
        FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only()', name);
      made := made + 1;
    END IF;
    month := ((month AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
  END LOOP;
  RETURN made;
END $$;
-- what fits no month (a clock far off) is kept, not lost
CREATE TABLE ledger_entries_default PARTITION OF ledger_entries DEFAULT;
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries_default
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
SELECT ensure_ledger_partitions(now() - interval '1 month', 5);
--> statement-breakpoint
-- Items below the cursor that are neither in flight nor done: retries, and items whose effect key is held by another.
CREATE TABLE item_retries (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  ord integer NOT NULL,
  shard integer NOT NULL,
  effect_key text NOT NULL,
  attempt integer NOT NULL,
  step text NOT NULL DEFAULT '',
  run_at timestamptz NOT NULL DEFAULT now(),
  reason text NOT NULL,
  prior_state text,
  prior_class text,
  PRIMARY KEY (tenant_id, operation_id, ord),
  CONSTRAINT item_retries_reason CHECK (reason IN ('key_known', 'unsent', 'failed', 'confirmed_absent', 'freed', 'idempotent_resend'))
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX item_retries_due ON item_retries (tenant_id, operation_id, shard, run_at);
--> statement-breakpoint
CREATE TABLE reconciliation_cases (
  tenant_id integer NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  operation_id uuid NOT NULL,
  shard integer NOT NULL,
  ord integer NOT NULL,
  type text NOT NULL,
  item_key text NOT NULL,
  effect_key text NOT NULL,
  send integer NOT NULL,
  cause text NOT NULL,
  opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '24 hours',
  lookups integer NOT NULL DEFAULT 0,
  next_lookup_at timestamptz,
  last_lookup text,
  closed_at timestamptz,
  resolution text,
  resolved_by text,
  resolution_source text,
  evidence_ref text,
  effect_ref text,
  note text,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT reconciliation_cases_cause CHECK (cause IN ('send_outcome_unknown', 'worker_lost', 'in_doubt_elsewhere',
    'duplicate_suspected', 'contradiction')),
  CONSTRAINT reconciliation_cases_closed CHECK ((closed_at IS NULL) = (resolution IS NULL)),
  CONSTRAINT reconciliation_cases_resolution CHECK (resolution IN ('applied', 'not_applied'))
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX reconciliation_cases_open ON reconciliation_cases (tenant_id, operation_id, ord) WHERE closed_at IS NULL;
CREATE INDEX reconciliation_cases_queue ON reconciliation_cases (tenant_id, opened_at, id);
CREATE INDEX reconciliation_cases_operation ON reconciliation_cases (tenant_id, operation_id, opened_at, id);
CREATE INDEX reconciliation_cases_lookup ON reconciliation_cases (next_lookup_at) WHERE closed_at IS NULL AND next_lookup_at IS NOT NULL;
CREATE INDEX reconciliation_cases_in_doubt ON reconciliation_cases (tenant_id, effect_key) WHERE closed_at IS NULL AND cause = 'in_doubt_elsewhere';
--> statement-breakpoint
CREATE TABLE dead_letters (
  tenant_id integer NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  operation_id uuid NOT NULL,
  ord integer NOT NULL,
  type text NOT NULL,
  item_key text NOT NULL,
  effect_key text NOT NULL,
  failure_class text NOT NULL,
  reason_code text,
  message text,
  attempts integer NOT NULL,
  fingerprint text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX dead_letters_item ON dead_letters (tenant_id, operation_id, ord);
CREATE INDEX dead_letters_fingerprint ON dead_letters (tenant_id, type, fingerprint, created_at);
--> statement-breakpoint
CREATE TABLE replay_preflights (
  tenant_id integer NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  operation_id uuid NOT NULL,
  scope jsonb NOT NULL,
  facts jsonb NOT NULL,
  facts_hash text NOT NULL,
  requested_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  used_by uuid,
  PRIMARY KEY (tenant_id, id)
);
--> statement-breakpoint
-- One row per change of an operation, written with the version change: audit, event stream, outbox.
CREATE TABLE operation_events (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  version bigint NOT NULL,
  kind text NOT NULL,
  status text NOT NULL,
  actor text NOT NULL,
  reason text,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, operation_id, version)
);
--> statement-breakpoint
CREATE TABLE workers (
  id uuid PRIMARY KEY,
  host text NOT NULL,
  pid integer NOT NULL,
  state text NOT NULL DEFAULT 'active',
  code_version text NOT NULL,
  types jsonb NOT NULL,
  beat_ms integer NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT workers_state CHECK (state IN ('active', 'draining', 'gone'))
) WITH (fillfactor = 70);
--> statement-breakpoint
-- Calls, errors and latency per type, minute and worker; flushed each second, never in the hot path.
CREATE TABLE type_minutes (
  type text NOT NULL,
  minute timestamptz NOT NULL,
  worker_id uuid NOT NULL,
  calls bigint NOT NULL DEFAULT 0,
  errors bigint NOT NULL DEFAULT 0,
  items bigint NOT NULL DEFAULT 0,
  rejected bigint NOT NULL DEFAULT 0,
  retries bigint NOT NULL DEFAULT 0,
  -- counts per bucket of call time: see domain/latency.ts
  latency bigint[] NOT NULL,
  PRIMARY KEY (type, minute, worker_id)
) WITH (fillfactor = 70);
CREATE INDEX type_minutes_minute ON type_minutes (minute);
--> statement-breakpoint
-- A rate over all workers: the time at which the next call of a type may start (GCRA).
CREATE TABLE type_rates (
  type text PRIMARY KEY,
  next_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
--> statement-breakpoint
-- Target of the built-in example type `example-import`.
CREATE TABLE example_places (
  tenant_id integer NOT NULL,
  id text NOT NULL,
  name text NOT NULL,
  country text NOT NULL,
  lat double precision NOT NULL,
  lng double precision NOT NULL,
  operation_id uuid,
  PRIMARY KEY (tenant_id, id)
);
