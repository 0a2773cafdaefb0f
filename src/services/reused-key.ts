import { AppError } from '../domain/errors.ts'

/** A key was taken when we stored, and free again when we looked whose it is; after so many times somebody is in a loop. */
export const KEY_TRIES_MAX = 10

/** An idempotency key names what was made with it, and nothing else. */
export const reusedKey = (): AppError =>
  new AppError('idempotency-key-reused', 'this Idempotency-Key was used with another request body: use a new key', {
    errors: [{ detail: 'used before with another body', pointer: 'Idempotency-Key' }],
  })

/** Nothing was stored; the request may be repeated. */
export const keyKeepsChanging = (): AppError =>
  new AppError('overloaded', 'what this Idempotency-Key names keeps being made and forgotten: try again')
