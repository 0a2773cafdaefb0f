import { AppError } from '../domain/errors.ts'

/** An idempotency key names what was made with it, and nothing else. */
export const reusedKey = (): AppError =>
  new AppError('idempotency-key-reused', 'this Idempotency-Key was used with another request body: use a new key', {
    errors: [{ detail: 'used before with another body', pointer: 'Idempotency-Key' }],
  })
