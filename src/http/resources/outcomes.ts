import { z } from 'zod'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { EVIDENCE_SOURCES, ITEM_STATES } from '../../domain/ledger.ts'
import { ledgerRow } from '../../domain/ledger-entry.ts'
import { toRfc3339, toRfc3339OrNull } from '../../domain/times.ts'
import type { CheckpointView, EventView, ItemView, LedgerEntryView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'

/** What hangs below an operation: items, ledger entries, checkpoints, events. */

const failureClass = openEnum(FAILURE_CLASSES, 'Why it failed.').nullable()

export const ItemResource = z
  .object({
    key: z.string(),
    ord: z.int(),
    state: openEnum([...ITEM_STATES, 'unprocessed'], 'The latest outcome.'),
    failure_class: failureClass,
    reason_code: z.string().nullable(),
    attempt: z.int(),
    retry_at: time.nullable().describe('When a failed item is tried again; null when it is not.'),
    effect_key: z.string().nullable(),
    effect_ref: z.string().nullable(),
    evidence_ref: z.string().nullable(),
    observed_at: time.nullable(),
    // last, as readers of the CSV may count columns
    step: z
      .string()
      .nullable()
      .describe('The step that it waits for, or that its outcome is of; null where its type has no steps.'),
  })
  .meta({ id: 'Item' })
export type ItemResource = z.infer<typeof ItemResource>

export const toItem = (view: ItemView): ItemResource => ({
  key: view.key,
  ord: view.ord,
  state: view.state,
  failure_class: view.failureClass,
  reason_code: view.reasonCode,
  attempt: view.attempt,
  retry_at: toRfc3339OrNull(view.retryAt),
  effect_key: view.effectKey,
  effect_ref: view.effectRef,
  evidence_ref: view.evidenceRef,
  observed_at: toRfc3339OrNull(view.observedAt),
  step: view.step,
})

export const LedgerEntryResource = z
  .object({
    ord: z.int(),
    seq: z.int().describe('Grows within an item.'),
    item_key: z.string(),
    step: z.string().nullable().describe('Null where the type has no steps.'),
    attempt: z.int(),
    state: openEnum(ITEM_STATES, 'The outcome; null for an observation that changed none.').nullable(),
    failure_class: failureClass,
    reason_code: z.string().nullable(),
    message: z.string().nullable(),
    effect_key: z.string(),
    input_hash: z.string(),
    effect_ref: z.string().nullable(),
    evidence_ref: z.string().nullable(),
    source: openEnum(EVIDENCE_SOURCES, 'Who observed it.'),
    actor: z.string().nullable(),
    observed_at: time,
    worker_id: z.string().nullable(),
    code_version: z.string(),
  })
  .meta({ id: 'LedgerEntry' })
export type LedgerEntryResource = z.infer<typeof LedgerEntryResource>

export const toLedgerEntry: (view: LedgerEntryView) => LedgerEntryResource = ledgerRow

export const CheckpointResource = z
  .object({
    shard: z.int(),
    from_ord: z.int(),
    to_ord: z.int(),
    cursor: z.int().describe('Everything below it has an outcome, is in flight, or waits for a retry.'),
    state: openEnum(['ready', 'leased', 'done'], 'Of the shard.'),
    epoch: z.int().describe('The fencing number of the lease; it only grows.'),
    owner: z.string().nullable().describe('A worker id.'),
    lease_expires_at: time.nullable(),
    last_progress_at: time.nullable(),
    type_version: z.int().describe('Only a worker with this version of the type goes on from here.'),
    schema_version: z.int().describe('The form of the checkpoint: a worker that does not know it leaves it alone.'),
    code_version: z.string().nullable().describe('Of the type, in the worker that had it last.'),
  })
  .meta({ id: 'Checkpoint' })

export const toCheckpoint = (view: CheckpointView): z.infer<typeof CheckpointResource> => ({
  shard: view.shard,
  from_ord: view.fromOrd,
  to_ord: view.toOrd,
  cursor: view.cursor,
  state: view.state,
  epoch: view.epoch,
  owner: view.owner,
  lease_expires_at: toRfc3339OrNull(view.leaseExpiresAt),
  last_progress_at: toRfc3339OrNull(view.lastProgressAt),
  type_version: view.typeVersion,
  schema_version: view.schemaVersion,
  code_version: view.codeVersion,
})

export const EventResource = z
  .object({
    version: z.int().describe('Of the operation itself, without its shards; the id of the event in a stream.'),
    kind: z.string().describe('What happened. Further kinds may be added.'),
    status: z.string().describe('The status of the operation after it.'),
    at: time,
    actor: z.string(),
    reason: z.string().nullable(),
  })
  .meta({ id: 'Event' })

export const toEvent = (view: EventView): z.infer<typeof EventResource> => ({
  version: view.version,
  kind: view.kind,
  status: view.status,
  at: toRfc3339(view.at),
  actor: view.actor,
  reason: view.reason,
})
