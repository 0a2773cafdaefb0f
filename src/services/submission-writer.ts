import type { Database } from '../storage/database.ts'
import { abortsBatch } from '../storage/database-faults.ts'
import { insertSubmissions, type Stored, type Submission } from '../storage/submissions.ts'
import { naturalBatch } from './natural-batch.ts'

const LANES = 2
const BATCH_MAX = 128
/** Characters of JSON in one statement. */
const BATCH_WEIGHT_MAX = 16 * 1024 * 1024
const QUEUE_MAX = 5_000
/** What an operation weighs besides its items. */
const OPERATION_WEIGHT = 500

/** Stores submissions, many at a time. Null: the idempotency key is taken. */
export type SubmissionWriter = (submission: Submission) => Promise<Stored | null>

export const openSubmissionWriter = ({ database }: { database: Database }): SubmissionWriter =>
  naturalBatch<Submission, Stored | null>({
    lanes: LANES,
    itemsMax: BATCH_MAX,
    queueMax: QUEUE_MAX,
    weigh: (submission) => submission.items.reduce((sum, item) => sum + item.input.length, OPERATION_WEIGHT),
    weightMax: BATCH_WEIGHT_MAX,
    // one statement: either everybody was stored or nobody was, unless the answer itself was lost
    isolate: (error) => !abortsBatch(error),
    async run(submissions) {
      const stored = await database.query((connection) => insertSubmissions(connection, submissions))
      return submissions.map((submission) => stored.get(submission.id) ?? null)
    },
  })
