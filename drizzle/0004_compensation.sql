-- A compensation is an operation that takes applied effects of another one back: operations.compensates names it.
CREATE INDEX operations_compensates ON operations (tenant_id, compensates) WHERE compensates IS NOT NULL;
--> statement-breakpoint
-- Stands with the shard, so that who claims it knows what to run without reading the operation.
ALTER TABLE operation_shards ADD COLUMN compensating boolean NOT NULL DEFAULT false;
--> statement-breakpoint
-- What a preflight asked about: one cannot be used for the other.
ALTER TABLE replay_preflights
  ADD COLUMN kind text NOT NULL DEFAULT 'replay',
  ADD CONSTRAINT replay_preflights_kind CHECK (kind IN ('replay', 'compensation'));
--> statement-breakpoint
-- The effect key of a step of an item, as src/domain/steps.ts makes it.
CREATE FUNCTION step_effect_key(item_effect_key text, step text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE step WHEN '' THEN item_effect_key ELSE item_effect_key || '/' || step END
$$;
