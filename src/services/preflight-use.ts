/** How a recorded preflight becomes an operation: what replays and compensations have in common. */

import { uuidv7 } from 'uuidv7'
import type { AuditEntry } from '../domain/audit.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import type { OperationType } from '../domain/operation-type.ts'
import { isForceable } from '../domain/replay.ts'
import type { DerivedOperation, Insertion } from '../storage/derived-operations.ts'
import type { RecordedPreflight } from '../storage/replays.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'

/** `replayed`: the preflight was used before, and `id` is what came of it. */
export interface Made {
  id: string
  replayed: boolean
}

const outdated = (detail: string): AppError => new AppError('preflight-outdated', `${detail}: ask for a new preflight`)

/** What came of an earlier use; null: it has none, and can be used. */
export const earlierUse = (recorded: RecordedPreflight): Made | null => {
  if (recorded.usedBy !== null) return { id: recorded.usedBy, replayed: true }
  if (recorded.expired) throw outdated('the preflight has expired')
  return null
}

/** What is open of the same operation is a refusal of its own, not a change that went unseen. */
const IN_PROGRESS: readonly string[] = ['replay-in-progress', 'compensation-in-progress']

/** The codes that block and are not forced. Errors: preflight-outdated. */
export const blockingCodes = (
  judgement: { factsHash: string; answer: { blockedBy: readonly string[] } },
  recorded: RecordedPreflight,
  force: readonly string[],
): string[] => {
  const { blockedBy } = judgement.answer
  const isOpen = blockedBy.some((code) => IN_PROGRESS.includes(code))
  if (judgement.factsHash !== recorded.factsHash && !isOpen) throw outdated('the facts have changed')
  return blockedBy.filter((code) => !(force.includes(code) && isForceable(code)))
}

/** The new operation, without what it takes to run its items. */
export const derivedFrom = (
  recorded: RecordedPreflight,
  { facts, type }: { facts: { version: number; targets: number }; type: OperationType },
  { tenantId, name }: Principal,
  reason: string,
): Omit<DerivedOperation, 'steps' | 'shardEnds'> => ({
  tenantId,
  id: uuidv7(),
  preflightId: recorded.id,
  of: recorded.operationId,
  seenVersion: facts.version,
  targets: facts.targets,
  typeVersion: type.version,
  codeVersion: type.codeVersion,
  requestedBy: name,
  reason,
  approvalRequired: type.approval === 'none' ? null : type.approval,
})

/** Of forced codes, in the audit. */
const FORCED_CHARS_MAX = 300

/** The subject is the operation that it is made of: the new one names it anyway. */
export const derivedAudit = (
  action: 'operation.replay' | 'operation.compensate',
  { id, of, targets, reason }: Pick<DerivedOperation, 'id' | 'of' | 'targets' | 'reason'>,
  principal: Principal,
  force: readonly string[],
): AuditEntry =>
  auditEntry(authorOf(principal), action, ['operation', formatId('op', of)], reason, {
    operation: formatId('op', id),
    targets,
    ...(force.length > 0 && { forced: force.join(' ').slice(0, FORCED_CHARS_MAX) }),
  })

/** Errors: preflight-outdated. */
export const answerInsertion = (
  { wakeUps }: Pick<ServiceContext, 'wakeUps'>,
  { id }: { id: string },
  insertion: Insertion,
): Made => {
  switch (insertion.kind) {
    case 'used':
      return { id: insertion.by, replayed: true }
    case 'outdated':
      throw outdated('the operation changed')
    case 'made':
      wakeUps.send('work')
      wakeUps.send('change')
      return { id, replayed: false }
  }
}
