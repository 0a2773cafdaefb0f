-- One attempt to add items to a draft; see the header of src/storage/uploads.ts. The open one of a draft (live or abandoned)
-- alone has a say over the rows at or above the draft's items_total.
CREATE TABLE operation_uploads (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  id uuid NOT NULL,
  state text NOT NULL DEFAULT 'live',
  -- items_total of the draft when it began
  from_ord integer NOT NULL,
  added integer NOT NULL DEFAULT 0,
  -- the Idempotency-Key of the upload, and what was sent with it
  upload_key text,
  request_hash text,
  requested_by text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  completed_at timestamptz,
  PRIMARY KEY (tenant_id, operation_id, id),
  CONSTRAINT operation_uploads_state CHECK (state IN ('live', 'abandoned', 'done')),
  CONSTRAINT operation_uploads_done CHECK (
    CASE state WHEN 'done' THEN num_nulls(completed_at, request_hash) = 0 ELSE completed_at IS NULL END),
  CONSTRAINT operation_uploads_counts CHECK (from_ord >= 0 AND added >= 0)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX operation_uploads_open ON operation_uploads (tenant_id, operation_id) WHERE state <> 'done';
CREATE UNIQUE INDEX operation_uploads_key ON operation_uploads (tenant_id, operation_id, upload_key)
  WHERE state = 'done' AND upload_key IS NOT NULL;
