import { uuidv7 } from 'uuidv7'
import { areCountsSensitive } from '../domain/count-range.ts'
import { AppError, type Fault } from '../domain/errors.ts'
import { LEDGER_EXPORT } from '../domain/ledger-export.ts'
import { INLINE_ITEMS_MAX } from '../domain/operation.ts'
import type { OperationType } from '../domain/operation-type.ts'
import { DEFAULT_STOP_IF, isStricter, parseStopCondition, type StopCondition } from '../domain/replay.ts'
import { parseCallbackUrl } from '../domain/webhook.ts'
import type { Submission, SubmittedItem } from '../storage/submissions.ts'
import { authorOf } from './audit.ts'
import { checkItem } from './check-item.ts'
import type { ServiceContext } from './context.ts'
import { downloadsNotConfigured } from './download-links.ts'
import { planArtifact } from './plan-artifact.ts'
import { type Principal, requireScope } from './principal.ts'
import type { SubmitRequest } from './requests.ts'
import { shardEnds } from './shard-ends.ts'

/** Faults named in one answer. */
const FAULTS_MAX = 100

export type SubmissionContext = Pick<ServiceContext, 'types' | 'database' | 'webhooks'> & {
  /** Whether what an operation publishes can be downloaded afterwards. */
  downloads: boolean
}

/** Everything that can refuse an operation before it is stored; answers with what there is to store. */
export const checkSubmission = async (
  { types, database, webhooks, downloads }: SubmissionContext,
  principal: Principal,
  request: SubmitRequest,
  requestHash: string,
): Promise<Submission> => {
  const type = types.get(request.type)
  if (!type) {
    throw new AppError('unknown-operation-type', `there is no operation type "${request.type}": see /operation-types`, {
      errors: [{ detail: 'no such operation type', pointer: '/type' }],
    })
  }
  if (type.idempotencyKey === 'required' && request.idempotencyKey === null) {
    throw new AppError('idempotency-key-required', `${type.name} needs an Idempotency-Key header`)
  }
  if (type.name === LEDGER_EXPORT) requireScope(principal, 'ledger:read')
  const callbackUrl = checkCallbackUrl(webhooks, request)
  // a webhook tells exact counts, and whoever gets it was chosen here
  if (callbackUrl !== null && areCountsSensitive(type)) requireScope(principal, 'ledger:read')
  const id = uuidv7()
  if (type.effect === 'artifact' && !downloads) throw downloadsNotConfigured()
  const items =
    type.effect === 'artifact'
      ? await planArtifact(database, type, request, { tenantId: principal.tenantId, id })
      : checkItems(type, request, id)
  return {
    tenantId: principal.tenantId,
    id,
    type: type.name,
    typeVersion: type.version,
    codeVersion: type.codeVersion,
    status: request.draft ? 'draft' : type.approval === 'always' ? 'awaiting_approval' : 'pending',
    requestedBy: principal.name,
    reason: request.reason,
    labels: request.labels,
    priority: request.priority,
    runAfter: request.runAfter,
    deadlineAt: request.deadlineAt,
    risk: type.risk,
    stopIf: stricterConditions(type, request),
    approvalRequired: type.approval === 'always' ? 'always' : null,
    idempotencyKey: request.idempotencyKey,
    requestHash,
    traceparent: request.traceparent,
    callbackUrl,
    items,
    shardEnds: request.draft ? [] : shardEnds(type, items.length),
    steps: type.steps,
    author: authorOf(principal),
  }
}

const checkCallbackUrl = (webhooks: ServiceContext['webhooks'], request: SubmitRequest): string | null => {
  if (request.callbackUrl === null) return null
  const pointer = '/callback_url'
  if (!webhooks) {
    throw new AppError(
      'webhooks-not-configured',
      'this service sends no webhooks, as OPLEDGER_WEBHOOK_SECRET is not set: leave "callback_url" out and poll',
      { errors: [{ detail: 'no webhooks are sent', pointer }] },
    )
  }
  const parsed = parseCallbackUrl(request.callbackUrl, webhooks.privateAddresses)
  if ('url' in parsed) return parsed.url
  throw new AppError('invalid-callback-url', `"callback_url" ${parsed.fault}`, {
    errors: [{ detail: parsed.fault, pointer }],
  })
}

const stricterConditions = (type: OperationType, request: SubmitRequest): string[] => {
  const base = (type.stopIf.length > 0 ? type.stopIf : DEFAULT_STOP_IF).map(parseStopCondition)
  const extra = request.stopIf.map((text, index) => {
    const condition = parseStopCondition(text)
    if (condition) return condition
    throw new AppError(
      'invalid-request',
      `"${text}" is not a stop condition: write "figure > number" or "figure > number%"`,
      {
        errors: [{ detail: 'not a stop condition', pointer: `/stop_if/${index}` }],
      },
    )
  })
  if (
    !isStricter(
      base.filter((condition): condition is StopCondition => condition !== null),
      extra,
    )
  ) {
    throw new AppError('invalid-request', `"stop_if" may only be stricter than the type's: ${type.stopIf.join(', ')}`, {
      errors: [{ detail: "looser than the type's own condition", pointer: '/stop_if' }],
    })
  }
  return request.stopIf
}

/** Checks each item against the type and makes its effect key. Names up to FAULTS_MAX faults at once. */
const checkItems = (type: OperationType, request: SubmitRequest, rootOperationId: string): SubmittedItem[] => {
  if (request.items.length === 0 && !request.draft) {
    throw new AppError('items-missing', 'an operation needs at least one item in "items"', {
      errors: [{ detail: 'at least one item is needed', pointer: '/items' }],
    })
  }
  if (request.items.length > INLINE_ITEMS_MAX) {
    throw new AppError(
      'too-many-items',
      `${request.items.length} items, and at most ${INLINE_ITEMS_MAX} fit into one request`,
      {
        errors: [{ detail: `at most ${INLINE_ITEMS_MAX} items`, pointer: '/items' }],
      },
    )
  }
  const seen = new Map<string, number>()
  const duplicates: Fault[] = []
  const faults: Fault[] = []
  const items: SubmittedItem[] = []
  for (const [index, item] of request.items.entries()) {
    const first = seen.get(item.key)
    if (first !== undefined) {
      if (duplicates.length < FAULTS_MAX) {
        duplicates.push({
          detail: `the key "${item.key}" is that of item ${first} too`,
          pointer: `/items/${index}/key`,
        })
      }
      continue
    }
    seen.set(item.key, index)
    const checked = checkItem(type, item, rootOperationId)
    if ('item' in checked) {
      items.push(checked.item)
      continue
    }
    for (const issue of checked.issues) {
      if (faults.length < FAULTS_MAX) {
        faults.push({ detail: issue.detail, pointer: `/items/${index}/input${issue.pointer}` })
      }
    }
  }
  if (duplicates.length > 0) {
    throw new AppError('duplicate-item-key', 'each item of an operation needs a key of its own', { errors: duplicates })
  }
  if (faults.length > 0) {
    throw new AppError(
      'invalid-item-input',
      `${type.name} refuses the input of ${faults.length === 1 ? 'an item' : 'some items'}`,
      {
        errors: faults,
      },
    )
  }
  return items
}
