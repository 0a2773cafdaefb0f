-- Before the rest, which locks tables until the end: nobody waits for them while this one is built. Without it, who forgets the
-- unused ones reads them all, also the used ones, which are kept.
CREATE INDEX IF NOT EXISTS replay_preflights_unused ON replay_preflights (expires_at) WHERE used_by IS NULL;
--> statement-breakpoint
-- A checkpoint says what wrote it, so that a worker that would not understand it leaves it alone: src/domain/checkpoint.ts.
-- `code_version` is of the type, as the worker had it that claimed the shard last. Constant defaults: no row is written.
ALTER TABLE operation_shards
  ADD COLUMN schema_version integer NOT NULL DEFAULT 1,
  ADD COLUMN code_version text;
--> statement-breakpoint
-- The newest checkpoint that the worker understands.
ALTER TABLE workers ADD COLUMN checkpoint_schema integer NOT NULL DEFAULT 1;
