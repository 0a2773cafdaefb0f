-- Dead letters are closed, with who and why; incidents (all dead letters with one fingerprint) are resolved.
ALTER TABLE dead_letters
  ADD COLUMN closed_at timestamptz,
  ADD COLUMN closed_by text,
  ADD COLUMN close_reason text,
  ADD COLUMN closed_as text,
  ADD CONSTRAINT dead_letters_closed_as CHECK (closed_as IN ('discarded', 'resolved')),
  ADD CONSTRAINT dead_letters_closed CHECK (num_nulls(closed_at, closed_by, close_reason, closed_as) IN (0, 4));
CREATE INDEX dead_letters_queue ON dead_letters (tenant_id, created_at, id);
CREATE INDEX dead_letters_open ON dead_letters (tenant_id, created_at, id) WHERE closed_as IS NULL;
CREATE INDEX dead_letters_operation ON dead_letters (tenant_id, operation_id, created_at, id);
CREATE INDEX dead_letters_effect ON dead_letters (tenant_id, effect_key);
-- the type is part of the fingerprint; standing beside it, it lets incidents be counted in the index alone
DROP INDEX dead_letters_fingerprint;
CREATE INDEX dead_letters_incident ON dead_letters (tenant_id, fingerprint, created_at, id) INCLUDE (type, operation_id);
--> statement-breakpoint
-- Where a dead letter stands now. `recovered` is read from the effect registry, which every writer of outcomes keeps true
-- (worker, late worker, lookup, callback, operator, another operation with the same effect key): no second record of it can
-- be forgotten or contradict it.
CREATE VIEW dead_letter_standings AS
  SELECT d.tenant_id, d.id, d.operation_id, d.ord, d.type, d.item_key, d.effect_key, d.failure_class, d.reason_code,
    d.message, d.attempts, d.fingerprint, d.created_at, d.closed_at, d.closed_by, d.close_reason, d.closed_as,
    CASE WHEN EXISTS (
      SELECT FROM effects e
      WHERE e.tenant_id = d.tenant_id AND e.effect_key = d.effect_key AND e.state IN ('applied', 'compensated'))
    THEN 'recovered' ELSE coalesce(d.closed_as, 'open') END AS status
  FROM dead_letters d;
--> statement-breakpoint
-- Append-only: each time that somebody said that the cause of an incident is mended.
CREATE TABLE incident_resolutions (
  tenant_id integer NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  fingerprint text NOT NULL,
  resolved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  resolved_by text NOT NULL,
  fixed_in text,
  reason text NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX incident_resolutions_incident ON incident_resolutions (tenant_id, fingerprint, resolved_at);
--> statement-breakpoint
-- A replay chain is found from any of its operations.
CREATE INDEX operations_chain ON operations (tenant_id, root_id);
