/** Histories as they might have been, written down call by call. */
import type { OperationStatus } from '../../../src/domain/operation.ts'
import type { Call, CallKind, Counts, OperationBody, Outcome } from '../../invariants/history.ts'

export const ID = `op_${'0'.repeat(31)}1`

export const body = (status: OperationStatus, version: number, change: Partial<OperationBody> = {}): OperationBody => ({
  id: ID,
  type: 'grant',
  status,
  version,
  counts: countsOf({}),
  cancelRequestedAt: null,
  cancelAcknowledgedAt: null,
  ...change,
})

export const countsOf = (counts: Partial<Counts>): Counts => {
  const given = { applied: 0, skipped: 0, failed: 0, uncertain: 0, unprocessed: 0, in_flight: 0, ...counts }
  const { applied, skipped, failed, uncertain, unprocessed } = given
  return { total: applied + skipped + failed + uncertain + unprocessed, ...given }
}

export const cancelledBody = (status: OperationStatus, version: number): OperationBody =>
  body(status, version, { cancelRequestedAt: '2026-01-01T00:00:00Z' })

export const ok = (operation: OperationBody | null, status = 200, change: Partial<Outcome> = {}): Outcome => ({
  status,
  code: null,
  replayed: false,
  operation,
  ...change,
})

export const refused = (code: string, status = 409): Outcome => ({ status, code, replayed: false, operation: null })

/** A call from `from` to `until`; null: no answer came. */
export const call = (
  kind: CallKind,
  [from, until]: readonly [number, number | null],
  outcome: Outcome | 'no-answer',
  change: Partial<Call> = {},
): Call => ({
  index: 0,
  kind,
  operationId: ID,
  key: null,
  body: null,
  items: null,
  stopsItself: false,
  invokedAt: from,
  returnedAt: until,
  invokedAtEpoch: from,
  returnedAtEpoch: until,
  outcome,
  ...change,
})

export const history = (...calls: readonly Call[]): Call[] => calls.map((each, index) => ({ ...each, index }))
