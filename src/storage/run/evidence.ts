/** What is brought to the one writer of outcomes (converge.ts). */
import type { Audited } from '../../domain/audit.ts'
import type { FailureClass } from '../../domain/failure.ts'
import type { EvidenceSource, ItemState } from '../../domain/ledger.ts'

export interface Report {
  ord: number
  effectKey: string
  send: number
  /** What the effect became. */
  effect: 'applied' | 'absent' | 'uncertain'
  /** What the item became; null: it was never sent and goes back uncharged. */
  item: ItemState | null
  failureClass: Exclude<FailureClass, 'ambiguous_effect'> | null
  reasonCode: string | null
  message: string | null
  effectRef: string | null
  evidenceRef: string | null
  /** Try again after so long; null: no retry. */
  retry: { afterMs: number; reason: 'unsent' | 'failed' | 'confirmed_absent' | 'freed' } | null
  /** Set when the item becomes a dead letter. */
  fingerprint: string | null
}

export interface Evidence extends Audited {
  source: Exclude<EvidenceSource, 'late_worker'>
  /** The epoch under which the reports were made; 0 when they come from no worker. */
  epoch: number
  workerId: string | null
  /** Who brought the evidence, when a person or a system did. */
  actor: string | null
  codeVersion: string
  /** When to ask the provider about what became uncertain; null: it cannot be asked. */
  lookupAfterMs: number | null
  reports: readonly Report[]
}
