import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339 } from '../../domain/times.ts'
import type { HistoryView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'
import { LedgerEntryResource, toLedgerEntry } from './outcomes.ts'

const KINDS = ['accepted', 'ledger_entry', 'dead_letter', 'dead_letter_discarded', 'dead_letter_resolved'] as const

export const HistoryEventResource = z
  .object({
    kind: openEnum(KINDS, 'What happened; `accepted`: an operation, a replay or a compensation took the item on.'),
    at: time,
    operation_id: z.string(),
    replay_of: z.string().nullable().describe('The operation that this one replays.'),
    compensates: z
      .string()
      .nullable()
      .describe('The operation whose effects this one takes back: `applied` then means that it was taken back.'),
    actor: z.string().nullable().describe('Who asked for it, brought the evidence or closed it.'),
    reason: z.string().nullable(),
    dead_letter_id: z.string().nullable(),
    incident_id: z.string().nullable(),
    entry: LedgerEntryResource.nullable().describe('For `ledger_entry`.'),
  })
  .meta({ id: 'HistoryEvent' })

export const toHistoryEvent = (view: HistoryView): z.infer<typeof HistoryEventResource> => ({
  kind: view.kind,
  at: toRfc3339(view.at),
  operation_id: formatId('op', view.operationId),
  replay_of: view.replayOf && formatId('op', view.replayOf),
  compensates: view.compensates && formatId('op', view.compensates),
  actor: view.actor,
  reason: view.reason,
  dead_letter_id: view.deadLetterId && formatId('dl', view.deadLetterId),
  incident_id: view.incidentId && formatId('inc', view.incidentId),
  entry: view.entry && toLedgerEntry(view.entry),
})
