-- Fine scopes, rotation of keys, and names of tenants that a token can carry.
--
-- Keys had the scopes read, write, operate, admin and work. Each of the first four is now a set of fine ones, the sets have
-- nothing in common, and every route asks for one of the set that stands for what it asked for before: so no key loses or
-- gains a right.
--   read    → operations:read, ledger:read, metrics:read
--   write   → operations:write, replay
--   operate → approve, reconcile
--   admin   → types:admin
--   work    → as it was
-- (/metrics asked for nothing. It shows the figures of the key's own tenant now; metrics:service, which nobody has by this
-- migration, those of the whole service.)
-- The fine names are added and the old ones stay in the row: processes of the version before, which run beside the new ones
-- during an upgrade, know only them, and the new ones know only the fine ones.
UPDATE api_keys k SET scopes = k.scopes || (
  SELECT coalesce(array_agg(t.fine ORDER BY t.ord), '{}')
  FROM (VALUES (1, 'read', 'operations:read'), (2, 'read', 'ledger:read'), (3, 'read', 'metrics:read'),
    (4, 'write', 'operations:write'), (5, 'write', 'replay'), (6, 'operate', 'approve'), (7, 'operate', 'reconcile'),
    (8, 'admin', 'types:admin')) AS t (ord, coarse, fine)
  WHERE t.coarse = ANY (k.scopes) AND t.fine <> ALL (k.scopes));
-- In whose name a bulk action works on.
UPDATE bulk_actions b SET requester_scopes = b.requester_scopes || (
  SELECT coalesce(jsonb_agg(t.fine ORDER BY t.ord), '[]')
  FROM (VALUES (1, 'read', 'operations:read'), (2, 'read', 'ledger:read'), (3, 'read', 'metrics:read'),
    (4, 'write', 'operations:write'), (5, 'write', 'replay'), (6, 'operate', 'approve'), (7, 'operate', 'reconcile'),
    (8, 'admin', 'types:admin')) AS t (ord, coarse, fine)
  WHERE b.requester_scopes @> to_jsonb(t.coarse) AND NOT b.requester_scopes @> to_jsonb(t.fine))
WHERE b.completed_at IS NULL;
--> statement-breakpoint
-- After a rotation the secret before is valid until previous_until.
ALTER TABLE api_keys ADD COLUMN previous_hash text;
ALTER TABLE api_keys ADD COLUMN previous_until timestamptz;
ALTER TABLE api_keys ADD COLUMN rotated_at timestamptz;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_previous CHECK ((previous_hash IS NULL) = (previous_until IS NULL));
CREATE UNIQUE INDEX api_keys_previous_hash ON api_keys (previous_hash) WHERE previous_hash IS NOT NULL;
--> statement-breakpoint
-- A token names its tenant. Until now tenants were made by hand, so two could have one name.
-- The first keeps it; each later one is called by its id too, as often as it takes: a tenant may have that name already.
DO $$
DECLARE
  later record;
  candidate text;
BEGIN
  FOR later IN
    SELECT t.id, t.name FROM tenants t
    WHERE EXISTS (SELECT 1 FROM tenants o WHERE o.name = t.name AND o.id < t.id) ORDER BY t.id
  LOOP
    candidate := later.name;
    WHILE EXISTS (SELECT 1 FROM tenants WHERE name = candidate) LOOP
      candidate := candidate || '-' || later.id;
    END LOOP;
    UPDATE tenants SET name = candidate WHERE id = later.id;
  END LOOP;
END $$;
CREATE UNIQUE INDEX tenants_name ON tenants (name);
--> statement-breakpoint
-- Who has used the kill switch, and why, is told to their own tenant only: that the type is paused, to all.
ALTER TABLE operation_types ADD COLUMN paused_tenant_id integer;
UPDATE operation_types SET paused_tenant_id = (SELECT min(id) FROM tenants HAVING count(*) = 1) WHERE paused_at IS NOT NULL;
