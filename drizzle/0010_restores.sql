-- Each time that the database was taken back to an older point: see src/storage/restores.ts and docs/restore.md.
CREATE TABLE restores (
  restored_at timestamptz PRIMARY KEY DEFAULT clock_timestamp(),
  -- what was done after this instant is not in the database
  lost_since timestamptz NOT NULL,
  -- until then operations that are accepted after the restore may repeat what a lost one did
  doubt_until timestamptz NOT NULL,
  CONSTRAINT restores_times CHECK (lost_since <= restored_at AND restored_at <= doubt_until)
);

-- Whether effects of an operation may have been sent in a time that was lost, and how long ago that time ended. Operations
-- that were there before the restore: for ever. Later ones, which may repeat a lost one: until doubt_until. Null: no doubt.
CREATE FUNCTION restore_doubt(tenant integer, operation uuid) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('restoredMsAgo', extract(epoch from clock_timestamp() - max(r.restored_at)) * 1000,
    'predates', bool_or(o.created_at <= r.restored_at))
  FROM restores r, operations o
  WHERE o.tenant_id = tenant AND o.id = operation AND (o.created_at <= r.restored_at OR now() < r.doubt_until)
  HAVING count(*) > 0
$$;

-- The oldest instant at which an effect of an operation may have been sent for the first time.
CREATE FUNCTION sends_since(created timestamptz, started timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT least(coalesce(started, created),
    (SELECT min(r.lost_since) FROM restores r WHERE r.restored_at >= created OR now() < r.doubt_until))
$$;
