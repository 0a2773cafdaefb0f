/**
 * The contract of an operation type: everything the engine, the services and the API know about what can be run.
 * Declarative types (a YAML or JSON entry) and code types (`defineOperationType`) both become an `OperationType`.
 */
import type { FailureClass } from './failure.ts'

export type Json = null | boolean | number | string | Json[] | { [member: string]: Json }

export const EFFECT_KINDS = ['external', 'transactional', 'artifact'] as const
export type EffectKind = (typeof EFFECT_KINDS)[number]

export const TOUCHES = ['money', 'permission', 'customer_data', 'customer_notice', 'external_send'] as const
export type Touch = (typeof TOUCHES)[number]

/** `pointer` is a JSON pointer below the item's input; '' means the input itself. */
export interface InputIssue {
  pointer: string
  detail: string
}

export interface EffectCall {
  /** For a compensator it is the compensation's own key, which names what is undone: see domain/compensation.ts. */
  effectKey: string
  itemKey: string
  input: Json
  /** As shown at the edge: `op_…`. */
  operationId: string
  type: string
  attempt: number
  traceparent: string | null
}

/** What is known about one effect after it was tried. What is not known is `uncertain`, never `failed`. */
export type SendOutcome =
  | { state: 'applied'; effectRef?: string }
  | { state: 'skipped'; reasonCode: string; effectRef?: string }
  | {
      state: 'failed'
      failureClass: Exclude<FailureClass, 'ambiguous_effect'>
      reasonCode?: string
      message?: string
    }
  | { state: 'uncertain'; reasonCode: string; message?: string }

export interface SendReport {
  outcome: SendOutcome
  /** A 5xx, a 429, a timeout or a broken connection; feeds `downstream_error_rate_5m`. A 4xx is none. */
  downstreamError: boolean
}

export type LookupOutcome =
  | { state: 'applied'; effectRef?: string; evidenceRef: string }
  | { state: 'absent'; evidenceRef: string }
  | { state: 'unknown'; reasonCode: string }

/** The transaction of a batch, as a tagged template. Parameters are sent as text: cast them (`${json}::text::jsonb`). */
export type TransactionSql = (
  strings: TemplateStringsArray,
  ...parameters: unknown[]
) => Promise<Record<string, unknown>[]>

export interface BatchItem {
  key: string
  input: Json
  effectKey: string
  attempt: number
}

/** The run a batch belongs to, for handlers whose tables are per tenant or keep the origin of a row. */
export interface BatchRun {
  tenantId: number
  /** As shown at the edge: `op_…`. */
  operationId: string
}

export type BatchResult = { key: string } & Exclude<SendOutcome, { state: 'uncertain' }>

export type Executor =
  | {
      kind: 'external'
      callTimeoutMs: number
      /** Never throws, and answers within `callTimeoutMs`. */
      send(call: EffectCall): Promise<SendReport>
      lookup: null | { afterMs: number; timeoutMs: number; find(call: EffectCall): Promise<LookupOutcome> }
    }
  | {
      kind: 'transactional'
      /** An item that no result names, or void for all of them: applied. A throw rolls the batch back. */
      runBatch(tx: TransactionSql, items: BatchItem[], run: BatchRun): Promise<BatchResult[] | undefined>
    }

export interface OperationType {
  name: string
  version: number
  description: string | null
  owner: string | null
  effect: EffectKind
  risk: 'low' | 'medium' | 'high'
  touches: Touch[]
  approval: 'none' | 'replay' | 'always'
  idempotencyKey: 'required' | 'optional'
  batch: { maxItems: number; maxMs: number }
  /** Shards per operation. */
  parallelism: number
  /** Calls in flight per shard. */
  concurrency: number
  ratePerSecond: number | null
  leaseMs: number
  stallMs: number
  maxCancelMs: number
  retry: { maxAttempts: number; baseMs: number; maxMs: number }
  stopIf: string[]
  retention: { itemsDays: number; ledgerDays: number }
  /** JSON pointers into an item's input that are not shown. */
  mask: string[]
  codeVersion: string
  onAbsent: 'retry' | 'case'
  providerIdempotentMs: number
  compensation: 'available' | 'none'
  noCompensationReason: string | null
  /** JSON Schema 2020-12 of one item's input. */
  inputSchema: Json
  /** Empty: valid. */
  validateInput(input: Json): InputIssue[]
  /** The effect key of an item (at most 1,000 bytes of UTF-8), or why none can be made. */
  effectKey(item: { key: string; input: Json; rootOperationId: string }): { key: string } | { issue: InputIssue }
  executor: Executor
  /** Takes applied effects back; of the executor's kind. Null: nothing can. */
  compensator: Executor | null
  close(): Promise<void>
}

/** What runs the items of a shard; null: it compensates, and its type does not say how. */
export const executorOf = (
  type: Pick<OperationType, 'executor' | 'compensator'>,
  compensating: boolean,
): Executor | null => (compensating ? type.compensator : type.executor)

/**
 * For how long the provider deduplicates by effect key. It promises this for the request that has the effect; of the request
 * that takes it back nothing was said.
 */
export const providerIdempotentMsOf = (
  type: Pick<OperationType, 'providerIdempotentMs'>,
  compensating: boolean,
): number => (compensating ? 0 : type.providerIdempotentMs)

export type CancelGuarantee =
  | 'discarded_before_publish'
  | 'stops_at_batch_boundary'
  | 'no_new_sends'
  | 'no_new_commands'

/** What a cancel promises for a type; published with it, so that a UI can say so before the button is pressed. */
export const cancelGuarantee = (type: Pick<OperationType, 'effect' | 'touches'>): CancelGuarantee => {
  switch (type.effect) {
    case 'artifact':
      return 'discarded_before_publish'
    case 'transactional':
      return 'stops_at_batch_boundary'
    case 'external':
      return type.touches.includes('money') ? 'no_new_commands' : 'no_new_sends'
  }
}
