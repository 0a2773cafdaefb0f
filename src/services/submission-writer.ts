import type { Database } from '../storage/database.ts'
import { abortsBatch } from '../storage/database-faults.ts'
import { insertSubmissions, type Stored, type Submission } from '../storage/submissions.ts'
import { naturalBatch } from './natural-batch.ts'

const BATCH_MAX = 128
/** Characters of JSON in one statement. */
const BATCH_WEIGHT_MAX = 16 * 1024 * 1024
/** From here on a submission is stored beside the small ones, which do not wait for it. */
const HEAVY_WEIGHT = 256 * 1024
const QUEUE_MAX = 5_000
/** What an operation weighs besides its items. */
const OPERATION_WEIGHT = 500

/** Stores submissions, many at a time. Null: the idempotency key is taken. */
export type SubmissionWriter = (submission: Submission) => Promise<Stored | null>

const weigh = (submission: Submission): number =>
  submission.items.reduce((sum, item) => sum + item.input.length, OPERATION_WEIGHT)

export const openSubmissionWriter = ({ database }: { database: Database }): SubmissionWriter => {
  const openLane = (): SubmissionWriter =>
    naturalBatch<Submission, Stored | null>({
      // what waits for a commit makes the next statement larger, and cheaper for each; a second lane would halve both
      lanes: 1,
      itemsMax: BATCH_MAX,
      queueMax: QUEUE_MAX,
      weigh,
      weightMax: BATCH_WEIGHT_MAX,
      // one statement: either everybody was stored or nobody was, unless the answer itself was lost
      isolate: (error) => !abortsBatch(error),
      async run(submissions) {
        const stored = await database.query((connection) => insertSubmissions(connection, submissions))
        return submissions.map((submission) => stored.get(submission.id) ?? null)
      },
    })
  const light = openLane()
  const heavy = openLane()
  return (submission) => (weigh(submission) < HEAVY_WEIGHT ? light(submission) : heavy(submission))
}
