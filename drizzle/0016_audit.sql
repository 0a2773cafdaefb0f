-- Who did what, when and why: one entry for each write that came from outside, in the transaction of what it tells of. See
-- src/domain/audit.ts. `seq` only tells entries of one instant apart.
CREATE SEQUENCE audit_entries_seq AS bigint;
CREATE TABLE audit_entries (
  tenant_id integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seq bigint NOT NULL DEFAULT nextval('audit_entries_seq'),
  actor text NOT NULL,
  -- by what the actor was known
  auth text NOT NULL,
  -- by which scope it was allowed
  scope text,
  action text NOT NULL,
  subject_kind text NOT NULL,
  -- as clients know it
  subject_id text NOT NULL,
  reason text,
  request_id text,
  trace_id text,
  -- small, and never an input or a secret
  details jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (tenant_id, at, seq),
  CONSTRAINT audit_entries_details CHECK (jsonb_typeof(details) = 'object' AND pg_column_size(details) <= 2000)
);
ALTER SEQUENCE audit_entries_seq OWNED BY audit_entries.seq;
CREATE INDEX audit_entries_subject ON audit_entries (tenant_id, subject_id);
CREATE INDEX audit_entries_actor ON audit_entries (tenant_id, actor, at, seq);
-- submissions are by far the most, and are found by time, actor and subject
CREATE INDEX audit_entries_action ON audit_entries (tenant_id, action, at, seq) WHERE action <> 'operation.submit';
--> statement-breakpoint
-- An entry as a row, for `INSERT INTO audit_entries SELECT a.* FROM …, audit_row(…) a` beside what it tells of. No entry, no row.
CREATE FUNCTION audit_row(tenant integer, entry jsonb) RETURNS SETOF audit_entries LANGUAGE sql VOLATILE AS $$
  SELECT tenant, clock_timestamp(), nextval('audit_entries_seq'), entry->>'actor', entry->>'auth', entry->>'scope',
    entry->>'action', entry->>'subject_kind', entry->>'subject_id', entry->>'reason', entry->>'request_id', entry->>'trace_id',
    coalesce(entry->'details', '{}')
  WHERE entry IS NOT NULL
$$;
--> statement-breakpoint
-- Nothing is changed or taken away. Retention may delete, for its own transaction, in batches, and only what is old.
CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('opledger.retention', true) = 'on' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'the audit is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', HINT = 'Retention sets opledger.retention = on for its own transaction.';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries
  FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
CREATE FUNCTION audit_retention_bounded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT count(*) > 10000 OR max(at) > now() - interval '30 days' FROM gone) THEN
    RAISE EXCEPTION 'retention of the audit deletes at most 10000 entries at once, and none that is younger than 30 days'
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_retention_bounded AFTER DELETE ON audit_entries
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION audit_retention_bounded();
--> statement-breakpoint
-- Whoever could turn kill switches may see who did what.
UPDATE api_keys SET scopes = scopes || '{audit:read}'
WHERE 'types:admin' = ANY (scopes) AND 'audit:read' <> ALL (scopes);
