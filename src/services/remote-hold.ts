/** A shard in the hands of a worker elsewhere: what it takes to run it, and the ways in which it leaves those hands. */
import { AppError } from '../domain/errors.ts'
import { type Executor, isRemote, type OperationType } from '../domain/operation-type.ts'
import type { RunnableType } from '../storage/run/claim-shards.ts'
import { finishShard } from '../storage/run/finish.ts'
import type { Lease } from '../storage/run/lease.ts'
import { readOwnIntents } from '../storage/run/window.ts'
import type { ServiceContext } from './context.ts'
import { convergeEvidence } from './converge.ts'
import { type Holder, sentReport, unsentReport, workerEvidence } from './outcome-reports.ts'
import { settleOperation } from './settle.ts'

export type RemoteContext = Pick<ServiceContext, 'database' | 'types' | 'wakeUps' | 'ended'>

export interface RemoteHold extends Holder {
  executor: Extract<Executor, { kind: 'external' }>
}

/** Errors: unknown-operation-type, where the type went away, or is not run by workers elsewhere any more. */
export const holdOf = ({ types }: Pick<RemoteContext, 'types'>, lease: Lease, typeName: string): RemoteHold => {
  const type = types.get(typeName)
  if (type === undefined || !isRemote(type) || type.executor.kind !== 'external') {
    throw new AppError('unknown-operation-type', `there is no operation type ${typeName} with \`remote\``)
  }
  return { lease, type, executor: type.executor, providerIdempotentMs: type.providerIdempotentMs }
}

export const runnableOf = (type: OperationType): RunnableType => ({
  name: type.name,
  version: type.version,
  leaseMs: type.leaseMs,
  windowMax: type.concurrency,
  compensates: false,
  codeVersion: type.codeVersion,
})

/** Gives the shard back. Null: the lease is lost, or something is still in flight. */
export const finishHold = async (
  context: Pick<RemoteContext, 'database' | 'wakeUps' | 'ended'>,
  lease: Lease,
): Promise<{ dueInMs: number | null } | null> => {
  const { database, wakeUps } = context
  const finished = await finishShard(database, lease)
  if (finished === null) return null
  if (finished.state === 'done') await settleOperation(context, lease.tenantId, lease.operationId)
  else wakeUps.send('work')
  wakeUps.send('change')
  return { dueInMs: finished.state === 'ready' ? finished.dueInMs : null }
}

/**
 * Says of what is in flight under the lease, but for `except`, that it was never sent, or that nobody says what became of it.
 * Who may say the first: only the holder, of itself, or we of what it was never given.
 */
export const explainInHand = async (
  context: Pick<RemoteContext, 'database' | 'wakeUps' | 'ended'>,
  hold: RemoteHold,
  as: 'unsent' | 'uncertain',
  except: (intent: { effectKey: string; send: number }) => boolean = () => false,
): Promise<void> => {
  const intents = await context.database.query((connection) => readOwnIntents(connection, hold.lease))
  const meant = intents.filter((intent) => !except(intent))
  if (meant.length === 0) return
  const reports = meant.map((intent) =>
    as === 'unsent'
      ? unsentReport(intent)
      : // key and attempt matter to a failure only
        sentReport(
          hold.type,
          { ...intent, key: '', attempt: 1 },
          { state: 'uncertain', reasonCode: 'NOT_REPORTED', message: 'its worker gave the shard back without a word' },
        ),
  )
  await convergeEvidence(context, hold.lease, workerEvidence(hold, reports))
}
