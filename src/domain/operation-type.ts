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
  /**
   * Of the step, where the type has steps. For a compensator it is the compensation's own key, which names what is undone: see
   * domain/compensation.ts.
   */
  effectKey: string
  /** Which of the type's steps; '' when it has none. */
  step: string
  itemKey: string
  input: Json
  /** As shown at the edge: `op_…`. */
  operationId: string
  type: string
  attempt: number
  traceparent: string | null
}

/** A call that is to have its effect. */
export interface SendCall extends EffectCall {
  /**
   * Whether the request may begin now: asked at the last moment before its first byte is written, in the same turn of the event
   * loop, as a call can wait for its connection. No after the run was told to stop or lost its lease, and after the call's time
   * is over; a later yes does not take back a no. Who was told no writes nothing, and answers `unsent`.
   */
  mayStart(): boolean
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

/** What an executor answers. `unsent`: `mayStart` said no, and nothing was written. The item is as if it had not been taken. */
export interface CallReport {
  outcome: SendOutcome | { state: 'unsent' }
  downstreamError: boolean
}

export type LookupOutcome =
  | { state: 'applied'; effectRef?: string; evidenceRef: string }
  | { state: 'absent'; evidenceRef: string }
  | { state: 'unknown'; reasonCode: string }

/** What a provider's event says of one effect. */
export interface CallbackStatement {
  effectKey: string
  state: 'applied' | 'absent'
  effectRef?: string
}

/** How a type receives its provider's events. */
export interface CallbackReceiver {
  /**
   * Whether exactly these bytes were signed with one of the type's secrets, recently enough (Standard Webhooks). Header
   * names are in lower case. Never throws, whatever a stranger sends.
   */
  verify(headers: Readonly<Record<string, string | readonly string[] | undefined>>, body: Uint8Array): boolean
  /** Null: the event says nothing of an effect. */
  read(event: Json): CallbackStatement | null
}

/**
 * The transaction of a batch, as a tagged template. Parameters are sent as text: cast them (`${json}::text::jsonb`). Ending it is
 * refused, and fails the batch.
 */
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

/** How the provider is asked what became of a send. */
export interface EffectLookup {
  afterMs: number
  timeoutMs: number
  find(call: EffectCall): Promise<LookupOutcome>
}

/** One part of an artifact, as its plan made it: an item of the operation. */
export interface PlannedChunk {
  key: string
  input: Json
}

/** What the handlers of an artifact type work with. */
export interface ArtifactRun extends BatchRun {
  /** Reads the database; each statement is a read-only transaction of its own. */
  query: TransactionSql
}

export interface ChunkRun extends ArtifactRun {
  /** Aborts when the chunk is no longer wanted: its time is up, or another worker has taken over. */
  signal: AbortSignal
}

export interface ArtifactFile {
  name: string
  contentType: string
}

export type Executor =
  | {
      kind: 'external'
      /** Its items are handed out over HTTP to workers that make the calls themselves; `send` is never called. */
      remote?: true
      /** Of the slowest step. */
      callTimeoutMs: number
      /** Never throws, and answers within `callTimeoutMs`. The call is of one of the type's steps. */
      send(call: SendCall): Promise<CallReport>
      lookup: null | EffectLookup
      /** By step, where it has one; `lookup` is that of a type without steps. */
      stepLookups?: ReadonlyMap<string, EffectLookup>
    }
  | {
      kind: 'transactional'
      /** An item that no result names, or void for all of them: applied. A throw rolls the batch back. */
      runBatch(tx: TransactionSql, items: BatchItem[], run: BatchRun): Promise<BatchResult[] | undefined>
    }
  | {
      kind: 'artifact'
      /** A chunk must be written within it. */
      chunkTimeoutMs: number
      /** The chunks that an input asks for, in the order of the file, or why it is refused. Keys are unique. */
      plan(input: Json, run: ArtifactRun): Promise<{ chunks: PlannedChunk[] } | { issues: InputIssue[] }>
      /** The bytes of a chunk; the same ones whenever it is asked. A throw is a failed attempt. */
      writeChunk(chunk: PlannedChunk, run: ChunkRun): AsyncIterable<Uint8Array | string>
      file(input: Json): ArtifactFile
      /** What a newer artifact takes the place of: the older one of this type with the same key. Null: of none. */
      artifactKey(input: Json): string | null
    }

export interface OperationType {
  name: string
  version: number
  description: string | null
  owner: string | null
  effect: EffectKind
  /** Of each item, in this order (see steps.ts); empty: an item is one effect. */
  steps: readonly string[]
  /** The last step cannot be taken back. */
  endsIrreversibly: boolean
  risk: 'low' | 'medium' | 'high'
  touches: Touch[]
  approval: 'none' | 'replay' | 'always'
  idempotencyKey: 'required' | 'optional'
  batch: { maxItems: number; maxMs: number }
  /** Shards per operation. */
  parallelism: number
  /** Calls in flight per shard, or chunks written at a time. */
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
  /** What callers without `ledger:read` see of how many items did what: see count-range.ts. */
  counts: 'exact' | 'ranges'
  codeVersion: string
  onAbsent: 'retry' | 'case'
  providerIdempotentMs: number
  compensation: 'available' | 'none'
  noCompensationReason: string | null
  /** JSON Schema 2020-12 of one item's input; for artifact types, of the operation's. */
  inputSchema: Json
  /** Empty: valid. */
  validateInput(input: Json): InputIssue[]
  /** The effect key of an item (at most 1,000 bytes of UTF-8), or why none can be made. */
  effectKey(item: { key: string; input: Json; rootOperationId: string }): { key: string } | { issue: InputIssue }
  executor: Executor
  /** Null: the type takes no callbacks. */
  callback: CallbackReceiver | null
  /** Takes applied effects back; of the executor's kind. Null: nothing can. */
  compensator: Executor | null
  close(): Promise<void>
}

type ExternalExecutor = Extract<Executor, { kind: 'external' }>

/** Whether workers elsewhere run its items: docs/worker-api.md. */
export const isRemote = ({ executor }: Pick<OperationType, 'executor'>): boolean =>
  executor.kind === 'external' && executor.remote === true

/** How an effect of this step is looked up; null: it cannot be. */
export const lookupOfStep = (executor: ExternalExecutor, step: string): EffectLookup | null =>
  step === '' ? executor.lookup : (executor.stepLookups?.get(step) ?? null)

/** The longest wait before a first lookup, over all steps; null: none can be looked up. */
export const lookupAfterMs = ({ lookup, stepLookups }: ExternalExecutor): number | null => {
  const lookups = [...(lookup === null ? [] : [lookup]), ...(stepLookups?.values() ?? [])]
  return lookups.length === 0 ? null : Math.max(...lookups.map(({ afterMs }) => afterMs))
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
