-- Webhooks out; see the header of src/storage/webhook-outbox.ts.
ALTER TABLE operations ADD COLUMN callback_url text;
--> statement-breakpoint
CREATE TABLE webhook_deliveries (
  tenant_id integer NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  operation_id uuid NOT NULL,
  -- the event of the operation that it tells of: operation_events.version
  event_version bigint NOT NULL,
  event text NOT NULL,
  status text NOT NULL,
  -- version, counts and times at the event
  facts jsonb NOT NULL,
  url text NOT NULL,
  origin text NOT NULL GENERATED ALWAYS AS (substring(url from '^[^:]+://[^/?#]+')) STORED,
  -- the bytes that are sent, from the first try on
  body text,
  state text NOT NULL DEFAULT 'pending',
  -- all that were ever begun; the number of the last one, which fences what its sender writes
  attempts integer NOT NULL DEFAULT 0,
  -- those since the delivery or its last redelivery began
  tries integer NOT NULL DEFAULT 0,
  next_attempt_at timestamptz DEFAULT clock_timestamp(),
  -- while one is being sent
  held_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  delivered_at timestamptz,
  last_status integer,
  last_error text,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT webhook_deliveries_event CHECK (event IN ('operation.settled', 'operation.reconciliation_required')),
  CONSTRAINT webhook_deliveries_state CHECK (state IN ('pending', 'delivered', 'failed', 'disabled')),
  CONSTRAINT webhook_deliveries_due CHECK ((state = 'pending') = (next_attempt_at IS NOT NULL)),
  CONSTRAINT webhook_deliveries_held CHECK (held_until IS NULL OR state = 'pending'),
  CONSTRAINT webhook_deliveries_delivered CHECK (state <> 'delivered' OR delivered_at IS NOT NULL),
  CONSTRAINT webhook_deliveries_tries CHECK (tries >= 0 AND tries <= attempts)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX webhook_deliveries_once ON webhook_deliveries (tenant_id, operation_id, event_version);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_origin ON webhook_deliveries (origin, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_held ON webhook_deliveries (origin, held_until) WHERE held_until IS NOT NULL;
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (created_at) WHERE state <> 'pending';
CREATE INDEX webhook_deliveries_undelivered ON webhook_deliveries (state) WHERE state IN ('failed', 'disabled');
--> statement-breakpoint
-- The delivery log: a row when a try begins, its end when the sender knows it.
CREATE TABLE webhook_attempts (
  tenant_id integer NOT NULL,
  delivery_id uuid NOT NULL,
  attempt integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- of the answer
  status integer,
  -- why there is none
  error text,
  duration_ms integer,
  PRIMARY KEY (tenant_id, delivery_id, attempt)
);
