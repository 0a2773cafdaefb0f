import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import type { ClaimedWorkView, HeldLeaseView, ReportedWorkView, WorkBatchView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'

/** What workers elsewhere are answered with: docs/worker-api.md. */

const WITHIN = 'Milliseconds, counted from before the request was sent.'

const WorkItem = z
  .object({
    effect_key: z.string().describe('Send it to the provider as its idempotency key, and back with the result.'),
    send: z.int().describe('Which send of the effect this is.'),
    key: z.string(),
    step: z.string().nullable().describe('The step to do; null where the type has no steps.'),
    input: z.unknown(),
    attempt: z.int(),
    resend: z.boolean().describe('A repeat under the promise of the provider that it knows the effect key.'),
    send_within_ms: z.int().describe(`Begin it before. ${WITHIN}`),
    send_by: time.describe('The same by the clock of the service, for people and logs.'),
  })
  .meta({ id: 'WorkItem' })

const stop = z.string().nullable().describe('`pause` or `cancel`: begin nothing more. Further values may be added.')
const giveBack = z.boolean().describe('Begin nothing more: the shard is wanted back.')
const leaseWithin = z.int().describe(`The lease stands so long unless it is renewed. ${WITHIN}`)

const WorkBatch = z
  .object({
    lease: z.string().describe('To name with the results. Use the one of the latest answer.'),
    type: z.string(),
    operation_id: z.string(),
    isolated: z.boolean().describe('Workers have died over this shard: run nothing beside it.'),
    lease_within_ms: leaseWithin,
    traceparent: z.string().nullable(),
    items: z.array(WorkItem),
  })
  .meta({ id: 'WorkBatch' })

export const ClaimedWorkResource = z
  .object({
    worker: z.string().describe('The name of this process, to send from now on.'),
    not_runnable: z.array(z.string()).describe('`name@version` of types that the service has in another version.'),
    batch: WorkBatch.nullable().describe('Null: there is nothing, or the worker has just registered.'),
  })
  .meta({ id: 'ClaimedWork' })

export const ReportedWorkResource = z
  .object({
    lease: z.string().nullable().describe('To name from now on; null: it is over.'),
    lease_state: openEnum(
      ['held', 'finished', 'lost'],
      '`lost`: somebody else holds the shard, or might by now; results were kept.',
    ),
    stop,
    give_back: giveBack,
    lease_within_ms: leaseWithin,
    recorded: z.int().describe('Results that changed something. A repeated one does not.'),
    unknown: z.array(z.string()).describe('Effect keys that are none of this lease.'),
    in_hand: z.int().describe('Items that are not reported yet, those of `batch` included.'),
    batch: WorkBatch.nullable(),
    due_in_ms: z.int().nullable().describe('Of a finished shard with work left: when it is due again.'),
  })
  .meta({ id: 'ReportedWork' })

export const HeldLeaseResource = z
  .object({
    lease: z.string(),
    lease_state: openEnum(['held', 'lost'], 'Whether this worker may go on.'),
    stop,
    give_back: giveBack,
    lease_within_ms: leaseWithin,
  })
  .meta({ id: 'HeldLease' })

const toBatch = (batch: WorkBatchView): z.infer<typeof WorkBatch> => ({
  lease: batch.lease,
  type: batch.type,
  operation_id: formatId('op', batch.operationId),
  isolated: batch.isolated,
  lease_within_ms: batch.leaseWithinMs,
  traceparent: batch.traceparent,
  items: batch.items.map((item) => ({
    effect_key: item.effectKey,
    send: item.send,
    key: item.key,
    step: item.step === '' ? null : item.step,
    input: item.input,
    attempt: item.attempt,
    resend: item.resend,
    send_within_ms: batch.sendWithinMs,
    send_by: batch.sendBy,
  })),
})

export const toClaimedWork = (view: ClaimedWorkView): z.infer<typeof ClaimedWorkResource> => ({
  worker: view.worker,
  not_runnable: view.notRunnable,
  batch: view.batch && toBatch(view.batch),
})

export const toReportedWork = (view: ReportedWorkView): z.infer<typeof ReportedWorkResource> => ({
  lease: view.lease,
  lease_state: view.leaseState,
  stop: view.stop,
  give_back: view.giveBack,
  lease_within_ms: view.leaseWithinMs,
  recorded: view.recorded,
  unknown: view.unknown,
  in_hand: view.inHand,
  batch: view.batch && toBatch(view.batch),
  due_in_ms: view.dueInMs === null ? null : Math.ceil(view.dueInMs),
})

export const toHeldLease = (view: HeldLeaseView): z.infer<typeof HeldLeaseResource> => ({
  lease: view.lease,
  lease_state: view.leaseState,
  stop: view.stop,
  give_back: view.giveBack,
  lease_within_ms: view.leaseWithinMs,
})
