import { vi } from 'vitest'
import type { CallReport, OperationType, SendCall } from '../../src/domain/operation-type.ts'
import type { Sender } from '../../src/engine/calls.ts'
import { runExternal } from '../../src/engine/external.ts'
import { convergeEvidence } from '../../src/services/converge.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { type ClaimedRetry, claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import type { Report } from '../../src/storage/run/evidence.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import {
  readDueRetries,
  readItems,
  readOwnIntents,
  readRetryAttempts,
  readWindow,
} from '../../src/storage/run/window.ts'
import { holdShard, notingContext, runnableItem } from './held-run.ts'

/** A call in the air: the test is the provider. */
interface AirborneCall {
  call: SendCall
  claimed: { ord: number; send: number }
  answer(outcome: CallReport['outcome'], downstreamError?: boolean): void
  break(error: Error): void
}

/**
 * A run of an external shard whose statements are faked (the test file mocks their modules): all keys are free, all writes
 * succeed, nothing waits, until the test says otherwise.
 */
export const startExternalRun = (
  shard: Partial<ClaimedShard> = {},
  type: Partial<OperationType> = {},
  { callTimeoutMs = 5_000, toOrd }: { callTimeoutMs?: number; toOrd?: number } = {},
) => {
  const held = holdShard(shard, type)
  const { context, noted } = notingContext()
  const claims: { from: number; to: number; ords: number[]; sendByMs: number }[] = []
  const written: Report[][] = []
  const air: AirborneCall[] = []
  /** Due retries that claims find; claimed ones are gone. */
  const due: ClaimedRetry[] = []
  const firstStep = held.lease.steps[0] ?? ''

  /** A run that an earlier test has left behind gets no answers any more. */
  const mine = async <T>(lease: { operationId: string }, answer: () => T): Promise<T> =>
    lease === held.lease ? answer() : new Promise<T>(() => {})
  vi.mocked(readWindow).mockImplementation((_connection, lease, from, to) =>
    mine(lease, () => Array.from({ length: to - from }, (_, n) => runnableItem(from + n, firstStep))),
  )
  vi.mocked(claimIntents).mockImplementation((_connection, lease, { from, to, sendByMs }) =>
    mine(lease, () => {
      const ords = Array.from({ length: to - from }, (_, n) => from + n)
      claims.push({ from, to, ords, sendByMs })
      return new Set(ords)
    }),
  )
  vi.mocked(readDueRetries).mockImplementation((_connection, lease, limit, below = Number.POSITIVE_INFINITY) =>
    mine(lease, () =>
      due
        .map(({ ord }) => ord)
        .filter((ord) => ord < below)
        .slice(0, limit),
    ),
  )
  vi.mocked(readItems).mockImplementation((_connection, lease, ords) =>
    mine(lease, () => ords.map((ord) => runnableItem(ord))),
  )
  vi.mocked(claimRetries).mockImplementation((_database, lease, ords) =>
    mine(lease, () =>
      ords.flatMap((ord) =>
        due.splice(
          due.findIndex((retry) => retry.ord === ord),
          1,
        ),
      ),
    ),
  )
  vi.mocked(explainKnownKeys).mockImplementation((_database, lease) => mine(lease, () => 0))
  vi.mocked(readRetryAttempts).mockImplementation((_connection, lease, ords) =>
    mine(lease, () => new Map(ords.map((ord) => [ord, 1]))),
  )
  vi.mocked(readOwnIntents).mockImplementation((_connection, lease) => mine(lease, () => []))
  vi.mocked(convergeEvidence).mockImplementation((_context, lease, { reports }) =>
    mine(lease, () => {
      written.push([...reports])
      return { moved: new Set(reports.map(({ ord }) => ord)), mine: true, stopRequested: null, done: false }
    }),
  )

  const sender: Sender = {
    callTimeoutMs,
    send: (call, claimed) =>
      new Promise((resolve: (report: CallReport) => void, reject) => {
        air.push({
          call,
          claimed: { ord: claimed.ord, send: claimed.send },
          answer: (outcome, downstreamError = false) => resolve({ outcome, downstreamError }),
          break: reject,
        })
      }),
  }
  let over = false
  let thrown: unknown = null
  // it begins behind the test's own changes to these fakes
  void Promise.resolve()
    .then(() => runExternal(context, held, sender, toOrd))
    .then(
      () => {
        over = true
      },
      (error: unknown) => {
        thrown = error
      },
    )
  return {
    held,
    noted,
    meter: context.meter,
    claims,
    written,
    air,
    due,
    /** It has ended well. */
    get isOver() {
      return over
    },
    /** What the run ended in, if it did not end well. */
    get error() {
      return thrown
    },
    /** Ords of calls, in the order in which they were sent. */
    sent: () => air.map(({ claimed }) => claimed.ord),
    /** Ords of all reports that were written, with what they say of the effect. */
    outcomes: () => written.flat().map(({ ord, effect, item }) => `${ord} ${effect} ${item}`),
  }
}

export const APPLIED: CallReport['outcome'] = { state: 'applied', effectRef: 'r1' }

export const dueRetry = (ord: number, over: Partial<ClaimedRetry> = {}): ClaimedRetry => ({
  ord,
  step: '',
  effectKey: `e${ord}`,
  send: 2,
  attempt: 2,
  resend: false,
  explained: false,
  ...over,
})
