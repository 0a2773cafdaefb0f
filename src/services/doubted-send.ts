import {
  type EffectCall,
  type Executor,
  lookupOfStep,
  type OperationType,
  type SendOutcome,
} from '../domain/operation-type.ts'
import { decideDoubtedSend, isDoubted } from '../domain/restore.ts'
import type { Report } from '../storage/run/evidence.ts'
import type { ClaimedShard } from '../storage/run/lease.ts'
import { absenceStableAfterMs } from './absence-report.ts'
import { report } from './evidence-reports.ts'
import { type Intent, sentReport } from './outcome-reports.ts'

interface Holding {
  lease: Pick<ClaimedShard, 'operationId' | 'doubt'>
  type: OperationType
  executor: Executor
}

type ClaimedItem = Intent & { key: string; attempt: number; resend: boolean; explained: boolean }

/** Whether the effect may have been sent in a time that a restore has lost: then it is asked about before it is sent. */
export const mustAskFirst = ({ lease, executor }: Holding, item: ClaimedItem, call: EffectCall): boolean =>
  executor.kind === 'external' &&
  // its provider has promised that a repeat is no second effect
  !item.resend &&
  isDoubted(lease.doubt, { effectKey: call.effectKey, operationId: lease.operationId, explained: item.explained })

/** Asks the provider. Null: it is absent, and may be sent. Never throws, as a lookup does not. */
export const askBeforeSend = async (held: Holding, item: ClaimedItem, call: EffectCall): Promise<Report | null> => {
  const { executor, lease, type } = held
  const lookup = executor.kind === 'external' ? lookupOfStep(executor, call.step) : null
  const found = lookup && (await lookup.find(call))
  const decision = decideDoubtedSend({
    lookup: found?.state ?? null,
    stable: (lease.doubt?.restoredMsAgo ?? 0) >= absenceStableAfterMs(executor),
    onAbsent: type.onAbsent,
  })
  switch (decision) {
    case 'send':
      return null
    case 'applied':
      return report(item, {
        effect: 'applied',
        item: 'applied',
        reasonCode: 'FOUND_AFTER_RESTORE',
        effectRef: (found?.state === 'applied' && found.effectRef) || null,
        evidenceRef: found !== null && found.state !== 'unknown' ? found.evidenceRef : null,
      })
    case 'uncertain': {
      const outcome: SendOutcome = {
        state: 'uncertain',
        reasonCode: 'DATABASE_RESTORED',
        message: `it may have been sent before the database was restored; lookup: ${found?.state ?? 'none'}`,
      }
      return sentReport(type, item, outcome)
    }
  }
}
