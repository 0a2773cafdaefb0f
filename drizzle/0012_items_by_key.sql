-- The list of operations is searched by the key of an item. Without it every operation of a tenant is probed, newest first.
CREATE INDEX operation_items_by_key ON operation_items (tenant_id, item_key);
