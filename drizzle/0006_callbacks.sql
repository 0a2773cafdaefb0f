-- Signed events of providers; see the header of src/storage/callbacks.ts. What an event says, and never the event itself.
-- An id is unique to whoever signs for the type, whatever tenant its effect turns out to belong to: so the key has no tenant.
CREATE TABLE callback_inbox (
  type text NOT NULL,
  event_id text NOT NULL,
  body_hash text NOT NULL,
  -- what it says, of which key; null: no rule of the type reads anything from it
  state text,
  effect_key text,
  effect_ref text,
  -- the send that was current when it was received, and whose it is; null: no effect of the type has this key
  tenant_id integer,
  operation_id uuid,
  shard integer,
  ord integer,
  item_key text,
  send integer,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- null: nobody has judged it yet
  outcome text,
  case_id uuid,
  -- null: it is still to be judged, at due_at or when its call has ended
  processed_at timestamptz,
  due_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 seconds',
  PRIMARY KEY (type, event_id),
  CONSTRAINT callback_inbox_state CHECK (state IN ('applied', 'absent')),
  CONSTRAINT callback_inbox_outcome CHECK (outcome IN ('applied', 'absent', 'known', 'deferred', 'contradiction',
    'duplicate_suspected', 'noted', 'unknown_effect', 'ignored')),
  CONSTRAINT callback_inbox_processed CHECK ((processed_at IS NOT NULL) = (outcome IS NOT NULL AND outcome <> 'deferred')),
  CONSTRAINT callback_inbox_said CHECK (num_nulls(state, effect_key) IN (0, 2)),
  CONSTRAINT callback_inbox_target CHECK (num_nulls(tenant_id, operation_id, shard, ord, item_key, send) IN (0, 6)
    AND (tenant_id IS NULL OR state IS NOT NULL) AND (processed_at IS NOT NULL OR tenant_id IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX callback_inbox_pending ON callback_inbox (due_at) WHERE processed_at IS NULL;
CREATE INDEX callback_inbox_old ON callback_inbox (processed_at) WHERE processed_at IS NOT NULL;
