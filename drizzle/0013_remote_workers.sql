-- A worker that takes its work over HTTP serves the tenant of its key, and is shown to that tenant only: docs/worker-api.md.
-- Null: a worker process of the service, which serves all of them.
ALTER TABLE workers ADD COLUMN tenant_id integer;
--> statement-breakpoint
-- What the api processes sign with, together: made by the first one that needs it.
CREATE TABLE signing_keys (
  name text PRIMARY KEY,
  key text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
