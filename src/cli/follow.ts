/**
 * Waits for an operation by long polling: `If-None-Match` with the last ETag, so that an answer means a change. What is lost on
 * the way costs nothing but time: the next poll tells the state as it is.
 */
import { type Answer, type ApiClient, pause } from './api-client.ts'
import type { Operation } from './api-types.ts'
import { EXIT } from './exit-codes.ts'
import { describeFailure } from './failures.ts'
import { isFinal } from './status-words.ts'

/** `Prefer: wait`, below what proxies cut off. */
const WAIT_SECONDS = 20
const WAIT_IN_DOUBT_SECONDS = 2
/** A running operation changes all the time; nobody reads faster. */
const POLL_MS_MIN = 500
/** Silence of the service that a wait outlives, such as a deployment of it. */
const PATIENCE_MS = 5 * 60_000
const CASES_LOOKED_AT_MAX = 500
/** While items are being checked, their cases are looked at so often at most. */
const CASES_EVERY_MS = 2_000

export interface FollowOptions {
  signal: AbortSignal
  /** Told each state that was seen. */
  show: (operation: Operation) => void
  /** Told when the service is not reached, once each time. */
  onSilence: (message: string) => void
  now?: () => number
}

/**
 * Until the operation is final, or until everything that is left of it waits for a person: `reconciliation_required`, and the
 * provider of no open case will be asked again.
 */
export const follow = async (api: ApiClient, id: string, options: FollowOptions): Promise<Operation> => {
  const { signal, show, now = performance.now.bind(performance) } = options
  let latest: Answer<Operation> | null = null
  let casesAt = Number.NEGATIVE_INFINITY
  for (;;) {
    const polled: Answer<Operation> | null = latest
    const answer: Answer<Operation> | null = await patiently(options, now, () =>
      api.getOperation(id, waitFor(polled), signal),
    )
    if (answer !== null) {
      latest = answer
      show(answer.body)
    }
    if (latest !== null) {
      if (isFinal(latest.body)) return latest.body
      if (isInDoubt(latest.body) && now() - casesAt >= CASES_EVERY_MS) {
        casesAt = now()
        if (await patiently(options, now, () => needsPersonNow(api, id, signal))) return latest.body
      }
    }
    await pause(POLL_MS_MIN, signal)
  }
}

const isInDoubt = ({ status }: Operation): boolean => status === 'reconciliation_required'

/** Null: nothing was seen yet, so there is nothing to wait for a change of. */
const waitFor = (seen: Answer<Operation> | null): { seen: string; seconds: number } | null => {
  if (seen === null || seen.etag === null) return null
  // in doubt the cases move as well, which the operation does not show
  return { seen: seen.etag, seconds: isInDoubt(seen.body) ? WAIT_IN_DOUBT_SECONDS : WAIT_SECONDS }
}

/** False while one case at least may still be closed by a lookup of its provider. */
const needsPersonNow = async (api: ApiClient, id: string, signal: AbortSignal): Promise<boolean> => {
  const open = await api.cases({ operation_id: id, status: 'open' }, CASES_LOOKED_AT_MAX, signal)
  return open.length > 0 && open.every(({ lookups }) => lookups.next_at === null)
}

const patiently = async <Result>(
  { signal, onSilence }: FollowOptions,
  now: () => number,
  ask: () => Promise<Result>,
): Promise<Result> => {
  let silentSince: number | null = null
  for (;;) {
    const askedAt = now()
    try {
      return await ask()
    } catch (error) {
      if (!isUnavailable(error)) throw error
      if (silentSince === null) onSilence(error instanceof Error ? error.message : String(error))
      silentSince ??= askedAt
      if (now() - silentSince > PATIENCE_MS) throw error
      await pause(POLL_MS_MIN, signal)
    }
  }
}

const isUnavailable = (error: unknown): boolean => describeFailure(error)?.exitCode === EXIT.unavailable
