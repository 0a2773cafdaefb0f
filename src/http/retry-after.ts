import { toMillis } from '../domain/times.ts'
import type { OperationView } from '../services/views.ts'
import { MAX_RETRY_AFTER_SECONDS } from './limits.ts'

/** A tenth of the age: young operations are asked often, old ones rarely, and no poll comes much too late. */
const AGE_SHARE = 0.1
const JITTER = 0.2

/** Whole seconds until a client should ask again; grows with the operation's age and is jittered, so that clients spread. */
export const retryAfterSeconds = (
  operation: Pick<OperationView, 'createdAt' | 'now'>,
  random = Math.random(),
): number => {
  const ageSeconds = Math.max(0, (toMillis(operation.now) - toMillis(operation.createdAt)) / 1000)
  const jittered = ageSeconds * AGE_SHARE * (1 - JITTER + 2 * JITTER * random)
  return Math.min(MAX_RETRY_AFTER_SECONDS, Math.max(1, Math.round(jittered)))
}
