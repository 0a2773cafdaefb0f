/** A ledger entry as rows show it: the same members, in the same order, in answers, streams and exported files. */
import type { FailureClass } from './failure.ts'
import type { EvidenceSource, ItemState } from './ledger.ts'
import { toRfc3339 } from './times.ts'

export interface LedgerEntry {
  ord: number
  seq: number
  itemKey: string
  /** Null: the item has no steps. */
  step: string | null
  attempt: number
  /** Null: an observation that changed no outcome. */
  state: ItemState | null
  failureClass: FailureClass | null
  reasonCode: string | null
  message: string | null
  effectKey: string
  /** Hex. */
  inputHash: string
  effectRef: string | null
  evidenceRef: string | null
  source: EvidenceSource
  actor: string | null
  /** The database's own text. */
  observedAt: string
  workerId: string | null
  codeVersion: string
}

export const ledgerRow = (entry: LedgerEntry) => ({
  ord: entry.ord,
  seq: entry.seq,
  item_key: entry.itemKey,
  step: entry.step,
  attempt: entry.attempt,
  state: entry.state,
  failure_class: entry.failureClass,
  reason_code: entry.reasonCode,
  message: entry.message,
  effect_key: entry.effectKey,
  input_hash: entry.inputHash,
  effect_ref: entry.effectRef,
  evidence_ref: entry.evidenceRef,
  source: entry.source,
  actor: entry.actor,
  observed_at: toRfc3339(entry.observedAt),
  worker_id: entry.workerId,
  code_version: entry.codeVersion,
})
export type LedgerRow = ReturnType<typeof ledgerRow>

/** In the order of a CSV's header. */
export const LEDGER_COLUMNS = [
  'ord',
  'seq',
  'item_key',
  'step',
  'attempt',
  'state',
  'failure_class',
  'reason_code',
  'message',
  'effect_key',
  'input_hash',
  'effect_ref',
  'evidence_ref',
  'source',
  'actor',
  'observed_at',
  'worker_id',
  'code_version',
] as const satisfies readonly (keyof LedgerRow)[]
