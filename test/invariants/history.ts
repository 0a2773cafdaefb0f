/**
 * What clients asked and were told: the one account of a run that does not come from the service's own tables. Each call has
 * the instants around it twice: monotonic, for what came before what; and `Date.now()`, to be held against the effect server's
 * log and the database. All processes of a run are on one machine, so that these clocks are one.
 */
import type { OperationStatus } from '../../src/domain/operation.ts'

export type CallKind =
  | 'submit'
  | 'upload'
  | 'start'
  | 'approve'
  | 'get'
  | 'cancel'
  | 'pause'
  | 'resume'
  | 'preflight'
  | 'replay'
  | 'compensate'
  | 'resolve'
  | 'read'

export const COUNTED = ['applied', 'skipped', 'failed', 'uncertain', 'unprocessed'] as const
export type Counts = Record<(typeof COUNTED)[number] | 'total' | 'in_flight', number>

/** What an operation's resource says, as far as anything is checked by it. */
export interface OperationBody {
  id: string
  type: string
  status: OperationStatus
  version: number
  counts: Counts
  /** RFC 3339, or null. */
  cancelRequestedAt: string | null
  cancelAcknowledgedAt: string | null
}

export interface Outcome {
  status: number
  /** Of a problem, else null. */
  code: string | null
  /** `Idempotent-Replayed: true`. */
  replayed: boolean
  /** Null: the body is no operation. */
  operation: OperationBody | null
}

/** What the request said, as far as it matters for what must hold. */
export interface CallFacts {
  /** Null: it is about no operation, or about one that the answer names. */
  operationId?: string | null
  key?: string | null
  /** Anything that is the same for the same body and differs for another; for calls with a key. */
  body?: string
  /** Of a submit that is no draft. */
  items?: number
  /** The operation may be cancelled or paused by the service itself: a deadline, a stop condition. */
  stopsItself?: boolean
}

export interface Call {
  index: number
  kind: CallKind
  operationId: string | null
  key: string | null
  body: string | null
  items: number | null
  stopsItself: boolean
  /** ms, monotonic. */
  invokedAt: number
  /** Null: no answer came. */
  returnedAt: number | null
  /** Epoch ms. */
  invokedAtEpoch: number
  returnedAtEpoch: number | null
  outcome: Outcome | 'no-answer'
}

export type AnsweredCall = Call & { returnedAt: number; outcome: Outcome }

export const isAnswered = (call: Call): call is AnsweredCall => call.outcome !== 'no-answer'
export const isAccepted = (call: Call): call is AnsweredCall =>
  call.outcome !== 'no-answer' && call.outcome.status >= 200 && call.outcome.status < 300

/** The calls that make an operation of their own, named by the answer. */
export const CREATING: readonly CallKind[] = ['submit', 'replay', 'compensate']

/** An answer as any client has it once its body is read; `body` is the parsed JSON, or whatever else came. */
export interface Answer {
  status: number
  body: unknown
  replayed?: boolean
}

export interface History {
  /** In the order in which they were invoked. Calls still open are in it, without an answer. */
  calls(): readonly Call[]
  /** Runs the call and keeps it; what it throws is thrown on, and kept as `no-answer`. */
  record<Given extends Answer>(kind: CallKind, facts: CallFacts, call: () => Promise<Given>): Promise<Given>
}

export const createHistory = (): History => {
  const calls: Call[] = []
  return {
    calls: () => calls,
    async record(kind, facts, call) {
      const entry: Call = {
        index: calls.length,
        kind,
        operationId: facts.operationId ?? null,
        key: facts.key ?? null,
        body: facts.body ?? null,
        items: facts.items ?? null,
        stopsItself: facts.stopsItself ?? false,
        invokedAt: performance.now(),
        returnedAt: null,
        invokedAtEpoch: Date.now(),
        returnedAtEpoch: null,
        outcome: 'no-answer',
      }
      calls.push(entry)
      const answer = await call()
      const outcome = readOutcome(answer)
      entry.returnedAt = performance.now()
      entry.returnedAtEpoch = Date.now()
      if (outcome.operation !== null && (entry.operationId === null || CREATING.includes(kind))) {
        entry.operationId = outcome.operation.id
      }
      entry.outcome = outcome
      return answer
    },
  }
}

type Json = Record<string, unknown>

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value)

const textOrNull = (value: unknown): string | null => (typeof value === 'string' ? value : null)

export const readOutcome = ({ status, body, replayed = false }: Answer): Outcome => ({
  status,
  code: isObject(body) ? textOrNull(body.code) : null,
  replayed,
  operation: readOperation(body),
})

const readOperation = (body: unknown): OperationBody | null => {
  if (!isObject(body) || typeof body.id !== 'string' || !body.id.startsWith('op_')) return null
  const { counts, cancel } = body
  if (typeof body.status !== 'string' || typeof body.version !== 'number' || !isObject(counts)) return null
  const receipt = isObject(cancel) ? cancel : {}
  return {
    id: body.id,
    type: String(body.type),
    status: body.status as OperationStatus,
    version: body.version,
    counts: counts as unknown as Counts,
    cancelRequestedAt: textOrNull(receipt.requested_at),
    cancelAcknowledgedAt: textOrNull(receipt.acknowledged_at),
  }
}

/** The operations that clients know of: `op_…`, each once. */
export const operationIds = (history: Pick<History, 'calls'>): string[] => [
  ...new Set(history.calls().flatMap((call) => (call.operationId === null ? [] : [call.operationId]))),
]
