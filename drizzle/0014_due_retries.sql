-- The shard comes before the operation: with (tenant_id, operation_id) in front this index looked as good as the primary key
-- for one item of an operation, as the planner knows averages and most operations are small, and then each item of a large
-- one cost a read of all that wait there. The new one is built first: nobody is without.
CREATE INDEX item_retries_due_by_shard ON item_retries (tenant_id, shard, operation_id, run_at);
--> statement-breakpoint
DROP INDEX item_retries_due;
