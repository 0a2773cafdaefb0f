-- Ordered steps per item, each an effect of its own; the protocol is in the header of src/storage/run/lease.ts.
-- The steps of a shard's items, in order; empty: an item is one effect. Written when the shard is made, so that whoever brings
-- evidence knows the order without the type being installed.
ALTER TABLE operation_shards
  ADD COLUMN steps text[] NOT NULL DEFAULT '{}',
  ADD CONSTRAINT operation_shards_steps CHECK (cardinality(steps) <= 8);
ALTER TABLE reconciliation_cases ADD COLUMN step text NOT NULL DEFAULT '';
ALTER TABLE dead_letters ADD COLUMN step text NOT NULL DEFAULT '';
ALTER TABLE item_retries
  DROP CONSTRAINT item_retries_reason,
  ADD CONSTRAINT item_retries_reason CHECK (reason IN ('key_known', 'unsent', 'failed', 'confirmed_absent', 'freed',
    'idempotent_resend', 'next_step', 'stopped'));
--> statement-breakpoint
-- The step behind `step`; null: it is the last one, or there are no steps.
CREATE FUNCTION step_after(steps text[], step text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT steps[array_position(steps, step) + 1]
$$;
-- The effect key of the step `next` of an item, made of that of its step `step`: src/domain/steps.ts says how they are made.
CREATE FUNCTION step_key(effect_key text, step text, next text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT left(effect_key, length(effect_key) - length(step)) || next
$$;
--> statement-breakpoint
-- as in 0001, with the step
CREATE OR REPLACE VIEW dead_letter_standings AS
  SELECT d.tenant_id, d.id, d.operation_id, d.ord, d.type, d.item_key, d.effect_key, d.failure_class, d.reason_code,
    d.message, d.attempts, d.fingerprint, d.created_at, d.closed_at, d.closed_by, d.close_reason, d.closed_as,
    CASE WHEN EXISTS (
      SELECT FROM effects e
      WHERE e.tenant_id = d.tenant_id AND e.effect_key = d.effect_key AND e.state IN ('applied', 'compensated'))
    THEN 'recovered' ELSE coalesce(d.closed_as, 'open') END AS status,
    d.step
  FROM dead_letters d;
