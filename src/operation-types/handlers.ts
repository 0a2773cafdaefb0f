/** What the handlers of a code type are given, and the one error by which they can say that nothing happened. */
import type {
  BatchItem,
  CallbackStatement,
  EffectCall,
  Json,
  LookupOutcome,
  SendOutcome,
  SendReport,
} from '../domain/operation-type.ts'

/** A call with its input as the zod schema gives it out. */
export type TypedCall<Input> = Omit<EffectCall, 'input'> & { input: Input }
export type TypedBatchItem<Input> = Omit<BatchItem, 'input'> & { input: Input }

/** `effectKey` is that of the effect to take back; the undoing has a key of its own, for the provider to deduplicate by. */
export type TypedCompensation<Input> = TypedCall<Input> & { compensationKey: string }
export type TypedBatchCompensation<Input> = TypedBatchItem<Input> & { compensationKey: string }

export interface CallContext {
  /** Aborts at the call's deadline. What is in flight then is uncertain. */
  signal: AbortSignal
}

export interface SendContext extends CallContext {
  /**
   * Whether the request may still begin. A handler that waits before it writes (for a token, a connection, its turn in a queue)
   * asks right before the first byte; on a no it writes nothing and throws `NothingSent`, which then charges no attempt.
   */
  mayStart(): boolean
}

export interface CodeLookup<Input, Call = TypedCall<Input>> {
  after_ms?: number
  timeout_ms?: number
  find(call: Call, context: CallContext): Promise<LookupOutcome>
}

/** A step of a code type. */
export interface CodeStep<Input> {
  name: string
  /** It cannot be taken back; only the last one may be. */
  irreversible?: boolean
  send(call: TypedCall<Input>, context: SendContext): Promise<SendOutcome | SendReport>
  lookup?: CodeLookup<Input>
}

export interface CodeCallback {
  /** `whsec_…`, as the provider's; several during a rotation. */
  secrets: string | readonly string[]
  /** How far the signed timestamp may be from now. */
  tolerance_seconds?: number
  /** What the event says of an effect; null: nothing. */
  read(event: Json): CallbackStatement | null
}

/**
 * Thrown by a `send` that is certain that nothing left the process: `failed`, class `transient`; after `mayStart` has said no:
 * unsent, as if the item had not been taken.
 */
export class NothingSent extends Error {
  override readonly name = 'NothingSent'
  /** Shown as the item's reason. */
  readonly reasonCode: string

  constructor(message: string, options: { reasonCode?: string; cause?: unknown } = {}) {
    super(message, { cause: options.cause })
    this.reasonCode = options.reasonCode ?? 'NOTHING_SENT'
  }
}
