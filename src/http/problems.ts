import type { AppError, ErrorCode, Fault } from '../domain/errors.ts'

/** One kind of problem: what the caller gets, and what the page `/problems/{code}` says about it. */
export interface ProblemKind {
  status: number
  title: string
  meaning: string
  action: string
  /** Sent as `Retry-After`, where trying the same again can help. */
  retryAfterSeconds?: number
}

/** The one map from error codes to answers. */
export const PROBLEMS: Readonly<Record<ErrorCode, ProblemKind>> = {
  'malformed-json': {
    status: 400,
    title: 'The body is not JSON',
    meaning: 'The request says that its body is JSON, but the body cannot be parsed, or is not UTF-8.',
    action: 'Send well-formed JSON in UTF-8. The detail names the place where parsing stopped.',
  },
  'malformed-request': {
    status: 400,
    title: 'The request is malformed',
    meaning: 'The request breaks HTTP or URL syntax, for example with an incomplete percent escape.',
    action: 'Encode the URL and the headers as their standards ask for.',
  },
  'invalid-request': {
    status: 400,
    title: 'The request does not fit the route',
    meaning: 'The body, a parameter or a header does not match the schema of the route, or exceeds one of its limits.',
    action:
      'Read `errors`: each entry names what is wrong and where (a JSON pointer into the body, or a parameter name).',
  },
  'invalid-cursor': {
    status: 400,
    title: 'The cursor cannot be used',
    meaning: 'The cursor was not made by this service, or belongs to a list with other filters.',
    action: 'Start again without `cursor`, and keep the filters unchanged while following `next_cursor`.',
  },
  'invalid-text': {
    status: 400,
    title: 'A text cannot be stored',
    meaning: 'A text contains U+0000 or a lone surrogate. Neither can be stored without changing the text.',
    action: 'Remove the character; `errors` names the place.',
  },
  unauthenticated: {
    status: 401,
    title: 'A valid API key is required',
    meaning:
      'The request carries no API key, or one that is unknown, expired or revoked; or a token (JWT) that is not taken, for the reason in the detail.',
    action:
      'Send `Authorization: Bearer opl_…` with a valid key. Keys are made with `opledger keys`. Where tokens are set up, one of their issuer will do.',
  },
  'invalid-signature': {
    status: 401,
    title: 'The signature is missing or wrong',
    meaning:
      'A callback needs `webhook-id`, `webhook-timestamp` and `webhook-signature` (Standard Webhooks) that sign exactly the bytes of its body with a secret of the operation type, not long before or after now. Nothing was kept.',
    action: 'Compare the secret and the clock at both ends, and send the body unchanged by any proxy.',
  },
  forbidden: {
    status: 403,
    title: 'This is not permitted',
    meaning:
      'The key or token is valid, but lacks the scope that the request needs; or the token names no tenant that is known here; or, where the service runs without keys, the request comes from a web page of another site.',
    action:
      'Use a key or token with the scope that `scope` and the detail name; tenants are made with `opledger tenants`. Without keys, send requests to the loopback interface.',
  },
  'token-keys-unavailable': {
    status: 503,
    title: 'Tokens cannot be checked',
    meaning: 'The keys with which tokens (JWTs) are signed could not be fetched from their issuer.',
    action: 'Try again, or use an API key. The operator finds the address in `OPLEDGER_JWT_JWKS_URL`.',
    retryAfterSeconds: 5,
  },
  'not-found': {
    status: 404,
    title: 'There is nothing here',
    meaning: 'No route or page has this path.',
    action: 'Compare the path with /openapi.json.',
  },
  'operation-not-found': {
    status: 404,
    title: 'There is no such operation',
    meaning: 'No operation with this id is visible to the caller.',
    action: 'Use the `id` of an accepted operation as it was given, with the key of the same tenant.',
  },
  'case-not-found': {
    status: 404,
    title: 'There is no such reconciliation case',
    meaning: 'No reconciliation case with this id is visible to the caller.',
    action: 'List the cases with `GET /reconciliation`.',
  },
  'item-not-found': {
    status: 404,
    title: 'There is no such item',
    meaning: 'The operation has no item with this key.',
    action: 'List the items with `GET /operations/{id}/items`, and percent-encode the key in the path.',
  },
  'dead-letter-not-found': {
    status: 404,
    title: 'There is no such dead letter',
    meaning: 'No dead letter with this id is visible to the caller.',
    action: 'List the dead letters with `GET /dead-letters`.',
  },
  'incident-not-found': {
    status: 404,
    title: 'There is no such incident',
    meaning: 'No dead letter visible to the caller belongs to an incident with this id.',
    action: 'List the incidents with `GET /incidents`.',
  },
  'bulk-action-not-found': {
    status: 404,
    title: 'There is no such bulk action',
    meaning: 'No bulk action with this id is visible to the caller.',
    action: 'List the bulk actions with `GET /bulk-actions`.',
  },
  'artifact-not-found': {
    status: 404,
    title: 'There is no such artifact',
    meaning: 'No artifact has this id.',
    action: 'Take the link from `GET /operations/{id}/artifact`.',
  },
  'artifact-not-published': {
    status: 404,
    title: 'Nothing has been published',
    meaning:
      'The operation has published no artifact: it still runs, it failed, it was cancelled, or its type makes none.',
    action: 'Read the status of the operation; a failed one can be replayed.',
  },
  'artifact-gone': {
    status: 410,
    title: 'The artifact can no longer be downloaded',
    meaning: 'It has expired, a newer one has taken its place, or its operation was cancelled after the publish.',
    action: 'Submit the operation again, or take the newer artifact.',
  },
  'items-purged': {
    status: 410,
    title: 'The items of the operation are gone',
    meaning:
      'The operation ended so long ago that its items were deleted: `retention.items_days` of its type are over. Its status, counts and events stay, and so does its ledger until `ledger_purged_at`.',
    action: 'Read the operation itself, or its ledger. What is to be done again is a new operation.',
  },
  'ledger-purged': {
    status: 410,
    title: 'The ledger of the operation is gone',
    meaning:
      'The operation ended so long ago that its ledger was deleted: `retention.ledger_days` of its type are over. Its status, counts and events stay.',
    action:
      'Read the operation itself. To keep evidence for longer, raise `retention.ledger_days`, or export it in time.',
  },
  'download-link-invalid': {
    status: 403,
    title: 'The download link is not valid',
    meaning: 'The signature of the link does not fit its id and its time.',
    action: 'Take a new link from `GET /operations/{id}/artifact`, and use it unchanged.',
  },
  'download-link-expired': {
    status: 403,
    title: 'The download link has expired',
    meaning: 'A link is good for 15 minutes.',
    action: 'Take a new link from `GET /operations/{id}/artifact`.',
  },
  'downloads-not-configured': {
    status: 503,
    title: 'Downloads are not set up',
    meaning: 'Download links are signed, and this api process has no secret to sign them with.',
    action: 'Set OPLEDGER_DOWNLOAD_SECRET to the same secret for every api process.',
  },
  'operation-type-not-found': {
    status: 404,
    title: 'There is no such operation type',
    meaning: 'No operation type with this name is configured.',
    action: 'List the types with `GET /operation-types`.',
  },
  'callback-not-configured': {
    status: 404,
    title: 'The operation type takes no callbacks',
    meaning: 'The type exists, but says neither which secret signs its callbacks nor how they are read.',
    action: 'Give the type a `callback`, or point the provider at the type that has one.',
  },
  'worker-not-found': {
    status: 404,
    title: 'There is no such worker',
    meaning: 'The `worker` was not given out by this service, or belongs to another tenant.',
    action:
      'Call `POST /worker/claims` without `worker` once at the start of the process, and use the one of its answer.',
  },
  'lease-not-found': {
    status: 404,
    title: 'There is no such lease',
    meaning: 'The `lease` was not given out by this service, was changed on its way, or belongs to another tenant.',
    action:
      'Send the `lease` of the latest answer as it is, with a key of the same tenant. Results are not lost by it: repeat them.',
  },
  'webhook-delivery-not-found': {
    status: 404,
    title: 'There is no such webhook delivery',
    meaning: 'No webhook delivery has this id, it was forgotten 30 days after its event, or it is not yours.',
    action: 'Follow `links.webhook_deliveries` of the operation.',
  },
  'method-not-allowed': {
    status: 405,
    title: 'The method is not allowed here',
    meaning: 'The path exists, but not for this method.',
    action: 'Use one of the methods in the `Allow` header.',
  },
  'not-acceptable': {
    status: 406,
    title: 'None of the accepted media types is available',
    meaning: 'The `Accept` header excludes everything that this resource can be answered with.',
    action: 'Accept one of the media types in `available`.',
  },
  'request-timeout': {
    status: 408,
    title: 'The request took too long to arrive',
    meaning: 'Headers or body did not arrive in time; nothing was done.',
    action: 'Send the request again, with the same `Idempotency-Key`.',
  },
  'body-too-large': {
    status: 413,
    title: 'The body is too large',
    meaning:
      'The body exceeds the limit of its route: 10 MiB, 1 GiB for the upload of items, or 256 KiB for a callback.',
    action: 'Upload many items to a draft, and very many in several uploads.',
  },
  'unsupported-media-type': {
    status: 415,
    title: 'The media type of the body is not supported',
    meaning: 'The `Content-Type` or `Content-Encoding` of the body is none that the route reads.',
    action: 'Send the `Content-Type` that the detail names, in UTF-8, without a content encoding.',
  },
  'headers-too-large': {
    status: 431,
    title: 'The headers are too large',
    meaning: 'The request line and headers together exceed 16 KiB.',
    action: 'Send fewer or shorter headers.',
  },
  'url-too-long': {
    status: 414,
    title: 'The URL is too long',
    meaning: 'The URL exceeds 8 KiB.',
    action: 'Use fewer filters.',
  },
  'expectation-failed': {
    status: 417,
    title: 'The expectation cannot be met',
    meaning: 'The `Expect` header asks for something other than `100-continue`.',
    action: 'Leave the header out.',
  },
  'too-many-requests': {
    status: 429,
    title: 'Too many requests',
    meaning:
      'The caller, or the address it calls from, exceeds a rate limit. `RateLimit-Policy` and `RateLimit` tell which; `read`, `write` and `work` are counted by caller, `address` for requests without a valid key.',
    action:
      'Wait for the seconds in `Retry-After`, then send the request again. Poll with `If-None-Match` (a 304 costs nothing) or `Prefer: wait`.',
    retryAfterSeconds: 5,
  },
  'unknown-operation-type': {
    status: 422,
    title: 'The operation type is not known',
    meaning: 'No operation type with this name is configured, so nothing was stored.',
    action: 'List the types with `GET /operation-types`.',
  },
  'invalid-item-input': {
    status: 422,
    title: 'An item does not fit the operation type',
    meaning: 'The input of at least one item is refused by the type, so nothing was stored.',
    action: 'Read `errors`: each entry points to an item and says what is wrong with it.',
  },
  'invalid-input': {
    status: 422,
    title: 'The input does not fit the operation type',
    meaning: "The operation's `input` is refused by the type, so nothing was stored.",
    action: 'Read `errors`: each entry points into `input` and says what is wrong.',
  },
  'items-not-accepted': {
    status: 422,
    title: 'The operation type makes its own items',
    meaning: 'An operation of this type takes an `input` and plans its items by itself. Nothing was stored.',
    action: 'Send `input` without `items` and without `draft`.',
  },
  'invalid-row': {
    status: 422,
    title: 'A row of the upload cannot be read',
    meaning: 'At least one line of the body is no item: it breaks the format or a limit. Nothing was added.',
    action:
      'Read `errors`: each entry names a `line` and says what is wrong with it. Mend the rows and send all again.',
  },
  'duplicate-item-key': {
    status: 422,
    title: 'Two items have the same key',
    meaning: 'Item keys are unique within an operation; nothing was stored.',
    action: 'Give every target one item. `errors` points to the repeated ones.',
  },
  'items-missing': {
    status: 422,
    title: 'The operation has no items',
    meaning: 'An operation needs at least one item; nothing was stored.',
    action: 'Send `items` with at least one entry, or upload some to the draft before it is started.',
  },
  'too-many-items': {
    status: 422,
    title: 'There are too many items',
    meaning: 'At most 10,000 items can be sent inline, and an operation has at most 10,000,000; nothing was stored.',
    action: 'Upload more than 10,000 items to a draft; split more than 10,000,000 into several operations.',
  },
  'idempotency-key-required': {
    status: 400,
    title: 'An Idempotency-Key is required',
    meaning: 'The operation type has effects that must not happen twice, so it asks for a key that makes a retry safe.',
    action: 'Send an `Idempotency-Key` that names the intent, and the same one when you retry.',
  },
  'idempotency-key-reused': {
    status: 422,
    title: 'The Idempotency-Key belongs to another request',
    meaning: 'The key was used before with a different body. Nothing was stored.',
    action: 'Use a new key for a new intent; to retry, send the body unchanged.',
  },
  'invalid-predecessor': {
    status: 422,
    title: 'An operation in "after" cannot be waited for',
    meaning:
      '`after` names something that is no operation of the caller, or the same one twice. Nothing was stored. An operation can only name such that exist before it, so no cycle can be written.',
    action: 'Use the `id` of accepted operations as they were given. `errors` points to the entries.',
  },
  'invalid-callback-url': {
    status: 422,
    title: 'The callback URL cannot be used',
    meaning:
      'Webhooks go to absolute https or http URLs without credentials and fragment, and not into private networks unless the service allows it. Nothing was stored.',
    action: 'Correct the URL as the detail says. Secrets do not belong into it: check the signature instead.',
  },
  'webhooks-not-configured': {
    status: 422,
    title: 'No webhooks are sent here',
    meaning: 'The service has no secret to sign webhooks with, so it takes no `callback_url`. Nothing was stored.',
    action:
      'Leave `callback_url` out and poll, or ask whoever runs the service to set `OPLEDGER_WEBHOOK_SECRET` for its api and workers.',
  },
  'version-conflict': {
    status: 412,
    title: 'The operation has changed',
    meaning: 'The version in `If-Match` is not the current one. Nothing was changed.',
    action: 'Read the operation again, decide again, and send its new `ETag`.',
  },
  'operation-already-final': {
    status: 409,
    title: 'The operation is already final',
    meaning: 'The operation has reached a final state, which is never left.',
    action: 'Read the operation: its counts say what was done. A replay is a new operation.',
  },
  'operation-not-pausable': {
    status: 409,
    title: 'The operation cannot be paused now',
    meaning: 'Only an operation that is pending or running can be paused.',
    action: 'Read `operation_status` and decide by it.',
  },
  'operation-not-paused': {
    status: 409,
    title: 'The operation is not paused',
    meaning: 'Only an operation that is paused, or about to be, can be resumed.',
    action: 'Read `operation_status` and decide by it.',
  },
  'operation-not-draft': {
    status: 409,
    title: 'The operation is not a draft',
    meaning: 'Items can be added only before the operation is started.',
    action: 'Submit another operation for further items.',
  },
  'operation-type-changed': {
    status: 409,
    title: 'The operation type has changed since the draft was made',
    meaning: 'All items of an operation are checked against one version of its type, and that version is gone.',
    action: 'Cancel the draft, make a new one and upload the items again.',
  },
  'upload-in-progress': {
    status: 409,
    title: 'Another upload to the draft is under way',
    meaning: 'A draft takes one upload at a time, and cannot be started during one. Nothing was changed.',
    action: 'Try again when the other upload has ended; one whose client is gone ends within half a minute.',
    retryAfterSeconds: 5,
  },
  'upload-lost': {
    status: 409,
    title: 'The upload was given up',
    meaning: 'The upload stood still for too long, and another one took its place. Nothing was added.',
    action: 'Send the upload again.',
  },
  'not-awaiting-approval': {
    status: 409,
    title: 'The operation does not wait for an approval',
    meaning: 'No approval was asked for, or somebody decided before.',
    action: 'Read `approval` of the operation: it says what was decided, and by whom.',
  },
  'approval-note-required': {
    status: 422,
    title: 'The approval needs a note',
    meaning:
      'Nothing could undo the effects of this operation, so whoever approves it has to say that they accept that.',
    action: 'Send the decision again with a `note`.',
  },
  'self-approval': {
    status: 403,
    title: 'The requester cannot approve the operation',
    meaning:
      'An approval is a second pair of eyes. So whoever requested the operation cannot give it, nor whoever has uploaded items to it, has started it, or has started the bulk action that made it.',
    action: 'Ask somebody else to decide. The requester may cancel.',
  },
  'replay-blocked': {
    status: 409,
    title: 'The replay is blocked',
    meaning: 'The preflight found something that forbids a replay; `blocked_by` names it. Nothing was started.',
    action: 'Remove the cause, for example by resolving the open reconciliation cases, and ask for a new preflight.',
  },
  'bulk-filter-empty': {
    status: 422,
    title: 'The filter leaves nothing out',
    meaning: 'A bulk action without a filter would concern every operation of the tenant. Nothing was stored.',
    action: 'Name what is meant: a type, labels, a time, a requester, or some of the statuses.',
  },
  'bulk-too-large': {
    status: 422,
    title: 'The filter matches too many operations',
    meaning: 'A bulk action has at most 10,000 targets. Nothing was stored.',
    action: 'Narrow the filter, for example by time, and make several bulk actions.',
  },
  'bulk-action-not-startable': {
    status: 409,
    title: 'The bulk action cannot be started',
    meaning: 'Only a dry run can be started, and only once.',
    action: 'Read `bulk_action_status`; for another run make a new bulk action.',
  },
  'bulk-action-expired': {
    status: 409,
    title: 'The dry run has expired',
    meaning: 'A dry run can be started for 24 hours: what it named may have changed since. Nothing was started.',
    action: 'Make a new bulk action with the same filter, and read what it names now.',
  },
  'bulk-action-not-abortable': {
    status: 409,
    title: 'The bulk action has finished',
    meaning: 'Every target has its outcome, so there is nothing left to abort.',
    action: 'Read the outcomes with `GET /bulk-actions/{id}/targets`.',
  },
  'compensation-blocked': {
    status: 409,
    title: 'The compensation is blocked',
    meaning: 'Something forbids taking the effects of the operation back; `blocked_by` names it. Nothing was started.',
    action:
      'Remove the cause, for example by resolving the open reconciliation cases, and ask again. What no compensation exists for is undone by hand.',
  },
  'preflight-outdated': {
    status: 412,
    title: 'The preflight is outdated',
    meaning: 'The preflight has expired, or its facts have changed. Nothing was started.',
    action: 'Ask for a new preflight, read it, and replay (or compensate) with its id.',
  },
  'case-already-resolved': {
    status: 409,
    title: 'The case is already resolved',
    meaning: 'Somebody, or a lookup, closed the case before; the first resolution stands.',
    action: 'Read the outcome in `resolution`. If it is wrong, correct the target itself and note it there.',
  },
  'case-changed': {
    status: 409,
    title: 'The case is about a later send by now',
    meaning:
      'The effect was sent again after the send that the evidence is about, and of that one nothing is known either. Nothing was changed.',
    action: 'Find out what became of the send in `send`, and resolve the case with that number in the body.',
  },
  'resend-in-progress': {
    status: 409,
    title: 'A resend is under way',
    meaning:
      'The effect is being sent again, as its provider allows; the answer may close the case. Nothing was changed.',
    action: 'Read the case again when the resend has ended; if it is still open, resolve it then.',
    retryAfterSeconds: 5,
  },
  'lookup-not-available': {
    status: 409,
    title: 'The provider cannot be asked about this case',
    meaning: 'The operation type has no status lookup, or the case is closed.',
    action: 'Find the evidence by hand and resolve the case with it.',
  },
  'event-id-reused': {
    status: 409,
    title: 'The event id belongs to another event',
    meaning: 'An event with this id was received before, with another body. The first one stands; nothing was changed.',
    action: 'Give every event an id of its own, and repeat an event with the same bytes.',
  },
  'callback-ambiguous': {
    status: 409,
    title: 'It is not clear whose effect the callback speaks of',
    meaning: 'Several tenants have an effect with this key, and nothing says which one is meant. Nothing was kept.',
    action: 'Register a URL with `?tenant=<id>` at the provider for each tenant.',
  },
  'dead-letter-already-closed': {
    status: 409,
    title: 'The dead letter is already closed',
    meaning: 'It was discarded or resolved before, or its effect is applied by now; the first closing stands.',
    action: 'Read `outcome`, and who closed it and why.',
  },
  'webhook-delivery-in-progress': {
    status: 409,
    title: 'The webhook is being sent just now',
    meaning: 'A try is under way, and a second one beside it would tell nobody anything new. Nothing was changed.',
    action: 'Read the delivery again in half a minute, and redeliver it then if it is still wanted.',
    retryAfterSeconds: 30,
  },
  'database-unavailable': {
    status: 503,
    title: 'The database is not available',
    meaning:
      'The service cannot reach its database, or had to wait for it too long. The request may or may not have been done.',
    action: 'Try again after `Retry-After` seconds, with the same `Idempotency-Key`.',
    retryAfterSeconds: 2,
  },
  overloaded: {
    status: 503,
    title: 'The service is overloaded',
    meaning:
      'A limit on concurrent work is reached, or the process has more to do than it can answer in time. Nothing was done.',
    action: 'Try again after `Retry-After` seconds.',
    retryAfterSeconds: 5,
  },
  'shutting-down': {
    status: 503,
    title: 'The service is shutting down',
    meaning: 'This process is about to end and takes no new work. Nothing was done.',
    action: 'Try again; another process will answer.',
    retryAfterSeconds: 1,
  },
  'not-ready': {
    status: 503,
    title: 'The service is not ready',
    meaning: 'Something that the service needs is missing; `checks` names it.',
    action: 'Send requests to another process, and look at the failing check if this lasts.',
    retryAfterSeconds: 2,
  },
  internal: {
    status: 500,
    title: 'An internal error happened',
    meaning: 'The service met something it did not expect. The request may or may not have been done.',
    action: 'Report the `request_id`. Try again with the same `Idempotency-Key`.',
  },
}

/** RFC 9457 with our members. */
export interface ProblemBody {
  type: string
  code: string
  title: string
  status: number
  detail: string
  instance: string
  request_id: string
  errors?: Fault[]
  [extension: string]: unknown
}

export const PROBLEM_MEDIA_TYPE = 'application/problem+json; charset=utf-8'

export interface ProblemPlace {
  publicUrl: string | null
  /** The path as asked, without the query, which may carry what should not be repeated. */
  instance: string
  requestId: string
}

export const toProblem = (error: AppError, place: ProblemPlace): ProblemBody => {
  const { status, title } = PROBLEMS[error.code]
  return {
    ...error.extra,
    type: `${place.publicUrl ?? ''}/problems/${error.code}`,
    code: error.code,
    title,
    status,
    detail: error.detail,
    instance: place.instance,
    request_id: place.requestId,
    ...(error.errors === undefined ? {} : { errors: error.errors }),
  }
}
