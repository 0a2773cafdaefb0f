-- One action over many operations, chosen by a filter; see the header of src/storage/bulk-targets.ts.
CREATE TABLE bulk_actions (
  tenant_id integer NOT NULL,
  id uuid NOT NULL,
  action text NOT NULL,
  status text NOT NULL,
  filter jsonb NOT NULL,
  -- of a replay: which items of each operation
  scope jsonb,
  reason text NOT NULL,
  rate_per_second integer NOT NULL,
  -- whoever asked: each target is worked on in this name
  requested_by text NOT NULL,
  requester_scopes jsonb NOT NULL,
  idempotency_key text,
  request_hash text NOT NULL,
  -- frozen at creation; what is in none of the four counts is pending
  targets integer NOT NULL,
  done integer NOT NULL DEFAULT 0,
  refused integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  skipped integer NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- of a dry run: until when it can be started
  expires_at timestamptz,
  started_at timestamptz,
  started_by text,
  start_reason text,
  aborted_at timestamptz,
  aborted_by text,
  abort_reason text,
  -- no target is pending any more
  completed_at timestamptz,
  -- the rate: before this no further target is claimed, by any worker
  next_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT bulk_actions_action CHECK (action IN ('cancel', 'replay')),
  CONSTRAINT bulk_actions_status CHECK (status IN ('dry_run', 'running', 'finished', 'aborted')),
  CONSTRAINT bulk_actions_scope CHECK (scope IS NULL OR action = 'replay'),
  CONSTRAINT bulk_actions_rate CHECK (rate_per_second BETWEEN 1 AND 100),
  CONSTRAINT bulk_actions_counts CHECK (least(done, refused, failed, skipped) >= 0
    AND done + refused + failed + skipped <= targets),
  CONSTRAINT bulk_actions_dry_run CHECK (status <> 'dry_run' OR (expires_at IS NOT NULL AND started_at IS NULL)),
  CONSTRAINT bulk_actions_started CHECK (status NOT IN ('running', 'finished') OR started_at IS NOT NULL),
  CONSTRAINT bulk_actions_aborted CHECK ((status = 'aborted') = (aborted_at IS NOT NULL)),
  CONSTRAINT bulk_actions_completed CHECK (completed_at IS NULL
    OR (status IN ('finished', 'aborted') AND done + refused + failed + skipped = targets)),
  CONSTRAINT bulk_actions_finished CHECK (status <> 'finished' OR completed_at IS NOT NULL)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX bulk_actions_idempotency_key ON bulk_actions (tenant_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX bulk_actions_newest ON bulk_actions (tenant_id, created_at DESC, id DESC);
CREATE INDEX bulk_actions_due ON bulk_actions (next_at) WHERE completed_at IS NULL AND status IN ('running', 'aborted');
CREATE INDEX bulk_actions_expired ON bulk_actions (expires_at) WHERE status = 'dry_run';
--> statement-breakpoint
CREATE TABLE bulk_action_targets (
  tenant_id integer NOT NULL,
  bulk_id uuid NOT NULL,
  ord integer NOT NULL,
  operation_id uuid NOT NULL,
  state text NOT NULL DEFAULT 'pending',
  code text,
  detail text,
  blocked_by jsonb NOT NULL DEFAULT '[]',
  -- of a replay: recorded before it is used, so that a repeat finds the same replay
  preflight_id uuid,
  result_operation_id uuid,
  -- grows with every claim: who claimed it last, alone may write it
  claims integer NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- from then on the action may have been done
  begun_at timestamptz,
  at timestamptz,
  PRIMARY KEY (tenant_id, bulk_id, ord),
  CONSTRAINT bulk_action_targets_state CHECK (state IN ('pending', 'done', 'refused', 'failed', 'skipped')),
  CONSTRAINT bulk_action_targets_at CHECK ((state = 'pending') = (at IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX bulk_action_targets_pending ON bulk_action_targets (tenant_id, bulk_id, ord) WHERE state = 'pending';
