import type { Operation } from './api-types.ts'
import { countOf, printable, wholeNumber } from './text.ts'

/** Ended for good. An unknown status is not taken for an end: it comes from a newer service. */
const FINAL_STATUSES = ['succeeded', 'partially_succeeded', 'failed', 'cancelled', 'completed_after_cancel']

export const isFinal = ({ status }: Operation): boolean => FINAL_STATUSES.includes(status)

/** The status in words that are true: never "nothing happened" when something did. */
export const statusInWords = (operation: Operation): string => {
  const { status, counts } = operation
  const done = counts.applied + counts.skipped
  switch (status) {
    case 'draft':
      return 'a draft: nothing of it runs before it is started'
    case 'awaiting_approval':
      return 'waiting for the approval of a second person'
    case 'pending':
      return operation.waiting_for.length > 0 ? 'waiting for other operations' : 'waiting to begin'
    case 'running':
      return 'running'
    case 'pause_requested':
      return 'pausing, what is in the air is being collected'
    case 'paused':
      return 'paused; it goes on at its checkpoint when it is resumed'
    case 'cancel_requested':
      return 'stopping, checking results'
    case 'reconciliation_required':
      return `${countOf(counts.uncertain, 'item')} being checked`
    case 'succeeded':
      return 'succeeded'
    case 'partially_succeeded':
      return `partially succeeded: ${wholeNumber(counts.failed)} of ${countOf(counts.total, 'item')} failed`
    case 'failed':
      return `failed: nothing was done, ${countOf(counts.failed, 'item')} failed`
    case 'cancelled':
      return `cancelled: ${wholeNumber(done)} done before it stopped, ${wholeNumber(counts.unprocessed)} not processed`
    case 'completed_after_cancel':
      return 'the cancel came too late: all of it was already done'
    default:
      return printable(status)
  }
}

/** What happened to the items, and what to do next. `command` makes a command line of the same service. */
export const describeOperation = (operation: Operation, command: (rest: string) => string): string => {
  const { id, type, counts, failures, approval, stuck_signals, error } = operation
  const lines = [
    `${id}  ${type}  ${statusInWords(operation)}`,
    `${countOf(counts.total, 'item')}: ${[
      `${wholeNumber(counts.applied)} applied`,
      `${wholeNumber(counts.skipped)} skipped`,
      `${wholeNumber(counts.failed)} failed`,
      `${wholeNumber(counts.uncertain)} uncertain`,
      `${wholeNumber(counts.unprocessed)} not processed`,
    ].join(', ')}`,
  ]
  const failed = Object.entries(failures).map(([name, count]) => `${wholeNumber(count)} ${name}`)
  if (failed.length > 0) lines.push(`failed as ${failed.join(', ')}`)
  if (operation.cancel.requested_at !== null) {
    lines.push(
      `${wholeNumber(operation.cancel.applied_after_request)} were in the air when the cancel came, and were applied`,
    )
  }
  if (error !== null) lines.push(`${error.code}: ${error.detail}`)
  if (stuck_signals.length > 0) lines.push(`signals: ${stuck_signals.join(', ')}`)
  if (approval?.note) lines.push(`note of the approval: ${approval.note}`)
  const next = nextSteps(operation, command)
  return [...lines.map(printable), ...next].map((line) => `${line}\n`).join('')
}

const nextSteps = (operation: Operation, command: (rest: string) => string): string[] => {
  const { id, status, counts } = operation
  if (status === 'reconciliation_required') return [`next: ${command(`reconcile list --operation ${id}`)}`]
  if (status === 'awaiting_approval') return [`next, by a second person: ${command(`approve ${id}`)}`]
  if (isFinal(operation) && counts.failed + counts.unprocessed > 0) return [`next: ${command(`preflight ${id}`)}`]
  return []
}
