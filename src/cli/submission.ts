/**
 * A submission that may be repeated after any crash. With rows it is three requests, each of which can be asked again:
 *
 *   POST /operations {draft}  Idempotency-Key K      the same K is the same draft, or what has become of it
 *   POST …/items              Idempotency-Key hash   the same bytes are added once
 *   POST …/start              a draft is started once; if it is none any more, somebody was here before
 *
 * So whatever the last run of the command got done, this one goes on behind it, and nothing of it runs before the last step.
 * K is given, or derived from the type and the content. Reason and labels are no part of a derived K on purpose: the same rows
 * under another reason are refused (`idempotency-key-reused`), not sent a second time.
 *
 * A derived K whose draft was cancelled before it had items is passed over for the next one (K-2, K-3 …): such an operation
 * did nothing and never will.
 */
import { createHash } from 'node:crypto'
import { type ApiClient, pause, Refusal } from './api-client.ts'
import type { Operation, Submission } from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { describeFailure } from './failures.ts'
import { CONTENT_TYPES, type RowsFile, readRows } from './rows-file.ts'

const DRAFTS_PASSED_OVER_MAX = 50
const UPLOAD_TRIES_MAX = 5
const UPLOAD_RETRY_MS = 2_000
/** An upload whose client died blocks the draft until its lease of 30 s is over. */
const UPLOAD_IN_PROGRESS_TRIES_MAX = 30

/** What names the work: type, and the rows as they are read; or type and input. */
export const deriveKey = (type: string, content: string): string =>
  `cli-${createHash('sha256')
    .update(JSON.stringify([type, content]))
    .digest('base64url')}`

export interface Submitted {
  operation: Operation
  /** It was there before this command: of an earlier run of it. */
  replayed: boolean
}

export interface SubmissionEvents {
  /** The draft that rows go to. */
  onDraft: (id: string) => void
  onBytes: (sent: number) => void
  note: (text: string) => void
}

/** Without rows: one request. */
export const submitInput = async (
  api: ApiClient,
  body: Submission,
  idempotencyKey: string,
  signal: AbortSignal,
): Promise<Submitted> => {
  const { body: operation, replayed } = await api.submit(body, idempotencyKey, signal)
  return { operation, replayed }
}

export const submitRows = async (
  api: ApiClient,
  body: Submission,
  rows: { file: RowsFile; keyColumn: string | null },
  key: { value: string; derived: boolean },
  events: SubmissionEvents,
  signal: AbortSignal,
): Promise<Submitted> => {
  const { operation, replayed } = await openDraft(api, { ...body, draft: true }, key, signal)
  if (operation.status !== 'draft') return { operation, replayed }
  events.onDraft(operation.id)
  try {
    const wasStarted = await upload(api, operation.id, rows, events, signal)
    if (!wasStarted) await startDraft(api, operation.id, signal)
  } catch (error) {
    // Under a given key the draft waits for better rows; nobody would find one under a derived key again.
    if (key.derived && error instanceof Refusal && error.problem.status === 422) {
      await api.cancel(operation.id, 'its rows were refused').catch(() => {})
    }
    throw error
  }
  const started = await api.getOperation(operation.id, null, signal)
  return { operation: started?.body ?? operation, replayed }
}

const wasDroppedEmpty = ({ status, started_at, counts }: Operation): boolean =>
  status === 'cancelled' && started_at === null && counts.total === 0

const openDraft = async (
  api: ApiClient,
  body: Submission,
  key: { value: string; derived: boolean },
  signal: AbortSignal,
): Promise<Submitted> => {
  for (let generation = 1; generation <= DRAFTS_PASSED_OVER_MAX; generation++) {
    const idempotencyKey = generation === 1 ? key.value : `${key.value}-${generation}`
    const { body: operation, replayed } = await api.submit(body, idempotencyKey, signal)
    if (!key.derived || !wasDroppedEmpty(operation)) return { operation, replayed }
  }
  throw new CommandFailure(
    `these rows were refused or given up ${DRAFTS_PASSED_OVER_MAX} times: give an --idempotency-key`,
    EXIT.refused,
  )
}

const codeOf = (error: unknown): string | null => (error instanceof Refusal ? error.problem.code : null)

/** True when somebody else with the same command has started the draft meanwhile. */
const upload = async (
  api: ApiClient,
  id: string,
  { file, keyColumn }: { file: RowsFile; keyColumn: string | null },
  events: SubmissionEvents,
  signal: AbortSignal,
): Promise<boolean> => {
  let blockedTries = 0
  for (let tries = 1; ; ) {
    try {
      const request = {
        contentType: CONTENT_TYPES[file.format],
        bytes: () => readRows(file, events.onBytes),
        keyColumn,
        idempotencyKey: `rows-${file.sha256}`,
      }
      await api.upload(id, request, signal)
      return false
    } catch (error) {
      if (codeOf(error) === 'operation-not-draft') return true
      if (codeOf(error) === 'upload-in-progress') {
        if (blockedTries === 0)
          events.note('an earlier upload to this draft is still open: waiting until it is given up')
        if (++blockedTries > UPLOAD_IN_PROGRESS_TRIES_MAX) throw error
      } else {
        const isPassing = codeOf(error) === 'upload-lost' || describeFailure(error)?.exitCode === EXIT.unavailable
        if (!isPassing || ++tries > UPLOAD_TRIES_MAX) throw error
        events.note('the upload broke off: sending the rows again (they are added once)')
      }
      await pause(UPLOAD_RETRY_MS, signal)
    }
  }
}

/** A start whose answer was lost, or a second run of the command, meets a draft that is none any more: that is what was wanted. */
const startDraft = async (api: ApiClient, id: string, signal: AbortSignal): Promise<void> => {
  try {
    await api.start(id, signal)
  } catch (error) {
    if (codeOf(error) !== 'operation-not-draft') throw error
  }
}
