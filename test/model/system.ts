/** The real thing: services and the statements of a run on a database of its own, without processes and without timers. */
import { AppError } from '../../src/domain/errors.ts'
import type { Json, OperationType } from '../../src/domain/operation-type.ts'
import type { ServiceContext } from '../../src/services/context.ts'
import { openStateReader, type StateReader } from '../../src/services/get-operation.ts'
import { lookupCase } from '../../src/services/lookup-case.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import { replayOperation } from '../../src/services/replay.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { cancelOperation, pauseOperation, resumeOperation } from '../../src/services/stop.ts'
import { openSubmissionWriter } from '../../src/services/submission-writer.ts'
import { submitOperation } from '../../src/services/submit.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { closeExplainedDoubts, readExplainedDoubts } from '../../src/storage/lookups.ts'
import { findCaseRow } from '../../src/storage/reconciliation.ts'
import { readUnsettled } from '../../src/storage/settle.ts'
import { NO_WAKE_UPS, wipe } from '../support/races.ts'
import { submitRequest } from '../support/submit-request.ts'
import type { Verdict } from './rules-reconcile.ts'
import type { Script } from './types.ts'

const principal = { tenantId: 1, name: 'tester', scopes: [] }
/** More than a sequence leaves open. */
const SWEEP_MAX = 1_000
/** After so many sequences the tables are emptied. */
const SEQUENCES_PER_WIPE = 100

export interface System extends ServiceContext {
  script: Script
  typeOf(name: string): OperationType
}

export interface Bench {
  /** An empty place for the next sequence. */
  begin(types: readonly OperationType[], script: Script): Promise<System>
  close(): Promise<void>
}

export const openBench = (url: string): Bench => {
  const database = openDatabase({ url, size: 2, name: 'model' })
  let sequences = 0
  return {
    async begin(types, script) {
      await (sequences++ % SEQUENCES_PER_WIPE === 0 ? wipe(database) : retire(database))
      const registry = { get: (name: string) => types.find((type) => type.name === name), list: () => [...types] }
      return {
        database,
        wakeUps: NO_WAKE_UPS,
        types: registry,
        script,
        typeOf(name) {
          const type = registry.get(name)
          if (!type) throw new Error(`there is no type ${name}`)
          return type
        },
      }
    },
    close: () => database.close(),
  }
}

/** What claims, sweeps and reconcilers would find of the sequence before. */
const retire = (database: Database): Promise<unknown> =>
  database.query(({ script }) =>
    script(
      'delete from operations; delete from operation_shards; delete from item_retries; delete from reconciliation_cases',
    ),
  )

/** The code of a refusal, or what the work came to. */
const answered = async <T>(work: () => Promise<T>): Promise<T | string> => {
  try {
    return await work()
  } catch (error) {
    if (error instanceof AppError) return error.code
    throw error
  }
}

export const submit = async (
  system: System,
  type: string,
  items: { key: string; target: string }[],
): Promise<string> => {
  const context = { ...system, downloads: false, writeSubmission: openSubmissionWriter(system) }
  const submitted = await submitOperation(
    context,
    principal,
    submitRequest(
      type,
      items.map(({ key, target }): { key: string; input: Json } => ({ key, input: { target } })),
    ),
  )
  return 'id' in submitted ? submitted.id : submitted.state.id
}

/** Reads once. A cancel waits a moment for the acknowledgement of a worker, and here nobody moves meanwhile. */
const readOnce = (system: System): StateReader => {
  const read = openStateReader(system)
  let reads = 0
  return (key) => (reads++ === 0 ? read(key) : Promise.resolve(null))
}

const STOPS = { cancel: cancelOperation, pause: pauseOperation, resume: resumeOperation }

/** The HTTP status, or the code of the refusal. */
export const askFor = (system: System, what: keyof typeof STOPS, operationId: string): Promise<200 | 202 | string> =>
  answered(async () => {
    const context = { ...system, readState: readOnce(system) }
    const { status } = await STOPS[what](context, principal, operationId, { reason: null, ifMatchVersion: null })
    return status
  })

export const askPreflight = async (system: System, operationId: string, wide: boolean) => {
  const scope = wide ? { states: ['failed', 'unprocessed'], failureClasses: null, itemKeys: null } : null
  return preflightReplay(system, principal, operationId, { scope })
}

export const askReplay = (system: System, preflight: { id: string; operationId: string }, force: string[]) =>
  answered(() =>
    replayOperation(system, principal, preflight.operationId, {
      preflightId: preflight.id,
      reason: 'again',
      force,
      ifMatchVersion: null,
    }),
  )

export const askLookup = (system: System, caseId: string): Promise<undefined | string> =>
  answered(() => lookupCase(system, principal, caseId).then(() => undefined))

/** By a person who has read the case just before. */
export const askResolve = async (system: System, caseId: string, verdict: Verdict): Promise<undefined | string> => {
  const shown = await system.database.query((connection) => findCaseRow(connection, principal.tenantId, caseId))
  const request = { ...verdict, evidenceRef: 'seen', effectRef: null, note: null, send: shown?.send }
  return answered(() => resolveCase(system, principal, caseId, request).then(() => undefined))
}

/** The reconciler's other half, as src/maintenance/reconciler.ts runs it. */
export const closeDoubts = async (system: System): Promise<void> => {
  for (const shard of await system.database.query((connection) => readExplainedDoubts(connection, SWEEP_MAX))) {
    const closed = await closeExplainedDoubts(system.database, shard)
    if (closed > 0) await settleOperation(system, shard.tenantId, shard.operationId)
  }
}

/** As src/maintenance/settle-sweep.ts runs it. */
export const sweep = async (system: System): Promise<void> => {
  for (const { tenantId, operationId } of await system.database.query((connection) =>
    readUnsettled(connection, SWEEP_MAX),
  )) {
    await settleOperation(system, tenantId, operationId)
  }
}

/** Time passes until everything that waits is due, and no send that was claimed before may begin any more. */
export const letTimePass = ({ database }: System): Promise<unknown> =>
  database.query(({ script }) =>
    script(`update item_retries set run_at = now() where run_at > now();
      update operation_shards set run_at = now() where state = 'ready' and run_at > now();
      update effects set send_by = now() - interval '1 second' where send_by > now()`),
  )

/** What is put off for half a second stays put off until time passes, however slow the machine is. */
export const putOff = ({ database }: System): Promise<unknown> =>
  database.query(({ sql }) => sql`update item_retries set run_at = now() + interval '1 hour' where run_at > now()`)
