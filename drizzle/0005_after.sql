-- An operation may wait for others (`after`); see the header of src/storage/dependencies.ts. `after_open`: it still waits, and
-- nothing of it is claimable. `awaited`: another one waits for it, or did, so whoever settles it looks for those.
ALTER TABLE operations
  ADD COLUMN after_when text,
  ADD COLUMN after_open boolean NOT NULL DEFAULT false,
  ADD COLUMN awaited boolean NOT NULL DEFAULT false,
  ADD CONSTRAINT operations_after_when CHECK (after_when IN ('succeeded', 'settled')),
  ADD CONSTRAINT operations_after CHECK ((after = '[]') = (after_when IS NULL)),
  -- a cancel gives the waiting up, and what waits has not run
  ADD CONSTRAINT operations_after_open CHECK (NOT after_open
    OR (after_when IS NOT NULL AND cancel_requested_at IS NULL AND completed_at IS NULL));
CREATE INDEX operations_after_open ON operations (tenant_id, id) WHERE after_open;
--> statement-breakpoint
-- Never changed but for `ended_as`: the final status of the one before, once the one behind has taken note of it.
CREATE TABLE operation_dependencies (
  tenant_id integer NOT NULL,
  operation_id uuid NOT NULL,
  after_id uuid NOT NULL,
  ended_as text,
  PRIMARY KEY (tenant_id, operation_id, after_id),
  CONSTRAINT operation_dependencies_self CHECK (after_id <> operation_id),
  CONSTRAINT operation_dependencies_ended_as CHECK (ended_as IN ('succeeded', 'partially_succeeded', 'failed', 'cancelled',
    'completed_after_cancel'))
);
CREATE INDEX operation_dependencies_after ON operation_dependencies (tenant_id, after_id);
