-- What is forgotten by age; see the header of src/storage/retention.ts. A time is set before the first row of that part is
-- deleted: from then on readers are told that it is gone. `purge_open`: rows are still being deleted.
ALTER TABLE operations
  ADD COLUMN items_purged_at timestamptz,
  ADD COLUMN ledger_purged_at timestamptz,
  ADD COLUMN purge_open boolean NOT NULL DEFAULT false,
  ADD CONSTRAINT operations_purged CHECK (items_purged_at IS NULL OR completed_at IS NOT NULL),
  ADD CONSTRAINT operations_ledger_purged CHECK (ledger_purged_at IS NULL OR items_purged_at IS NOT NULL),
  ADD CONSTRAINT operations_purge_open CHECK (NOT purge_open OR items_purged_at IS NOT NULL);
-- a chain is found by its root; one entry a chain, and none for what is purged
CREATE INDEX operations_items_kept ON operations (type, completed_at, tenant_id, id)
  WHERE id = root_id AND completed_at IS NOT NULL AND items_purged_at IS NULL;
CREATE INDEX operations_ledger_kept ON operations (type, completed_at, tenant_id, id)
  WHERE id = root_id AND items_purged_at IS NOT NULL AND ledger_purged_at IS NULL;
CREATE INDEX operations_purge_open ON operations (tenant_id, id) WHERE purge_open;
--> statement-breakpoint
-- Stands with the shard, so that who brings evidence under its lock knows that the items are gone.
ALTER TABLE operation_shards ADD COLUMN purged boolean NOT NULL DEFAULT false;
--> statement-breakpoint
CREATE INDEX callback_inbox_operation ON callback_inbox (tenant_id, operation_id) WHERE processed_at IS NULL;
CREATE INDEX bulk_action_targets_operation ON bulk_action_targets (tenant_id, operation_id) WHERE state = 'pending';
