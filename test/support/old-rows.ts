/** What housekeeping forgets by age: three old rows of each kind, and the chore that forgets them. */
import type { Connection } from '../../src/storage/connection.ts'
import {
  forgetGoneWorkers,
  forgetOldCallbacks,
  forgetOldDryRuns,
  forgetOldMinutes,
  forgetUnusedPreflights,
} from '../../src/storage/housekeeping.ts'
import { forgetOldDeliveries } from '../../src/storage/webhook-outbox.ts'

interface Chore {
  run: (connection: Connection) => Promise<void>
  table: string
  /** Plants so many rows that are old enough. */
  plant: string
}
const OLD = "now() - interval '1 year'"
export const CHORES: Record<string, Chore> = {
  workers: {
    run: forgetGoneWorkers,
    table: 'workers',
    plant: `insert into workers (id, host, pid, code_version, types, beat_ms, last_seen_at)
      select gen_random_uuid(), 'h', 1, 'c', '[]', 1000, ${OLD} from generate_series(1, 3)`,
  },
  minutes: {
    run: forgetOldMinutes,
    table: 'type_minutes',
    plant: `insert into type_minutes (type, minute, worker_id, latency)
      select 'grant', ${OLD}, gen_random_uuid(), '{}' from generate_series(1, 3)`,
  },
  preflights: {
    run: forgetUnusedPreflights,
    table: 'replay_preflights',
    plant: `insert into replay_preflights (tenant_id, operation_id, scope, facts, facts_hash, requested_by, expires_at)
      select 1, gen_random_uuid(), '{}', '{}', 'h', 'tester', ${OLD} from generate_series(1, 3)`,
  },
  callbacks: {
    run: forgetOldCallbacks,
    table: 'callback_inbox',
    plant: `insert into callback_inbox (type, event_id, body_hash, outcome, processed_at)
      select 'grant', gen_random_uuid()::text, 'h', 'ignored', ${OLD} from generate_series(1, 3)`,
  },
  'dry runs': {
    run: forgetOldDryRuns,
    table: 'bulk_actions',
    plant: `insert into bulk_actions (tenant_id, id, action, status, filter, reason, rate_per_second, requested_by,
        requester_scopes, request_hash, targets, expires_at)
      select 1, gen_random_uuid(), 'cancel', 'dry_run', '{}', 'r', 1, 'tester', '[]', 'h', 0, ${OLD}
      from generate_series(1, 3)`,
  },
  webhooks: {
    run: forgetOldDeliveries,
    table: 'webhook_deliveries',
    plant: `insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, facts, url, state, created_at,
        delivered_at, next_attempt_at)
      select 1, gen_random_uuid(), 2, 'operation.settled', 'succeeded', '{}', 'https://r.example/', 'delivered', ${OLD},
        ${OLD}, null from generate_series(1, 3)`,
  },
}
