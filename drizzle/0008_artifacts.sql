-- Files that operations have published; see the header of src/storage/run/publish.ts. A row is written in the same commit
-- as the outcome of the publish, so an artifact that is named here is whole, and one that is not named is none.
CREATE TABLE artifacts (
  tenant_id integer NOT NULL,
  id uuid NOT NULL,
  operation_id uuid NOT NULL,
  type text NOT NULL,
  -- a newer one of the same type with the same key takes its place
  artifact_key text NOT NULL,
  name text NOT NULL,
  content_type text NOT NULL,
  -- its name in the object store
  object text NOT NULL,
  size_bytes bigint NOT NULL,
  sha256 text NOT NULL,
  published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  superseded_at timestamptz,
  superseded_by uuid,
  supersede_reason text,
  -- its object was deleted: after it expired or was superseded
  removed_at timestamptz,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT artifacts_size CHECK (size_bytes >= 0),
  CONSTRAINT artifacts_supersede_reason CHECK (supersede_reason IN ('newer', 'cancel')),
  CONSTRAINT artifacts_superseded CHECK ((superseded_at IS NULL) = (supersede_reason IS NULL)),
  CONSTRAINT artifacts_superseded_by CHECK ((superseded_by IS NOT NULL) = (supersede_reason IS NOT DISTINCT FROM 'newer'))
);
CREATE UNIQUE INDEX artifacts_operation ON artifacts (tenant_id, operation_id);
CREATE UNIQUE INDEX artifacts_current ON artifacts (tenant_id, type, artifact_key) WHERE superseded_at IS NULL;
-- a download link names an id and carries its own proof; it knows no tenant
CREATE INDEX artifacts_link ON artifacts (id);
CREATE INDEX artifacts_kept ON artifacts (expires_at) WHERE removed_at IS NULL;
CREATE INDEX artifacts_superseded ON artifacts (superseded_at) WHERE removed_at IS NULL AND superseded_at IS NOT NULL;
--> statement-breakpoint
-- Operations that may have objects in the store: written before the first object, removed after the last sweep.
CREATE TABLE artifact_workspaces (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_sweep_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  swept_at timestamptz,
  PRIMARY KEY (tenant_id, operation_id)
);
CREATE INDEX artifact_workspaces_due ON artifact_workspaces (next_sweep_at);
