/** Every fault a caller can cause or must know of. `http/problems.ts` maps each code to a status and a title, once. */
export const ERROR_CODES = [
  'malformed-json',
  'malformed-request',
  'invalid-request',
  'invalid-cursor',
  'invalid-text',
  'unauthenticated',
  'invalid-signature',
  'forbidden',
  'token-keys-unavailable',
  'not-found',
  'operation-not-found',
  'case-not-found',
  'item-not-found',
  'dead-letter-not-found',
  'incident-not-found',
  'bulk-action-not-found',
  'operation-type-not-found',
  'callback-not-configured',
  'webhook-delivery-not-found',
  'worker-not-found',
  'lease-not-found',
  'artifact-not-found',
  'artifact-not-published',
  'artifact-gone',
  'items-purged',
  'ledger-purged',
  'download-link-invalid',
  'download-link-expired',
  'downloads-not-configured',
  'method-not-allowed',
  'not-acceptable',
  'request-timeout',
  'body-too-large',
  'unsupported-media-type',
  'headers-too-large',
  'url-too-long',
  'expectation-failed',
  'too-many-requests',
  'unknown-operation-type',
  'invalid-item-input',
  'invalid-input',
  'items-not-accepted',
  'invalid-row',
  'duplicate-item-key',
  'items-missing',
  'too-many-items',
  'idempotency-key-required',
  'idempotency-key-reused',
  'invalid-predecessor',
  'invalid-callback-url',
  'webhooks-not-configured',
  'version-conflict',
  'operation-already-final',
  'operation-not-pausable',
  'operation-not-paused',
  'operation-not-draft',
  'operation-type-changed',
  'upload-in-progress',
  'upload-lost',
  'case-already-resolved',
  'case-changed',
  'resend-in-progress',
  'lookup-not-available',
  'event-id-reused',
  'callback-ambiguous',
  'dead-letter-already-closed',
  'webhook-delivery-in-progress',
  'not-awaiting-approval',
  'approval-note-required',
  'self-approval',
  'replay-blocked',
  'bulk-filter-empty',
  'bulk-too-large',
  'bulk-action-not-startable',
  'bulk-action-expired',
  'bulk-action-not-abortable',
  'compensation-blocked',
  'preflight-outdated',
  'database-unavailable',
  'overloaded',
  'shutting-down',
  'not-ready',
  'internal',
] as const
export type ErrorCode = (typeof ERROR_CODES)[number]

/** One thing that is wrong with a request. `pointer` is a JSON pointer (RFC 6901) into the body, or a parameter name. */
export interface Fault {
  detail: string
  pointer?: string
  line?: number
}

/** An expected refusal. `detail` is shown to the caller: it says what was wrong, where, and what to do. */
export class AppError extends Error {
  override readonly name = 'AppError'
  readonly code: ErrorCode
  readonly detail: string
  readonly errors: Fault[] | undefined
  /** Further problem members, for example the state that refused the request. */
  readonly extra: Record<string, unknown> | undefined

  constructor(
    code: ErrorCode,
    detail: string,
    options: { errors?: Fault[]; extra?: Record<string, unknown>; cause?: unknown } = {},
  ) {
    super(`${code}: ${detail}`, 'cause' in options ? { cause: options.cause } : undefined)
    this.code = code
    this.detail = detail
    this.errors = options.errors
    this.extra = options.extra
  }
}

/** Stops the start. The message is one line that names the key, or the file, type and field, and what to do. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError'
}
