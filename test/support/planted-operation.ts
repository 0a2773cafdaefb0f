import { uuidv7 } from 'uuidv7'
import type { FailureClass } from '../../src/domain/failure.ts'
import { isFinal, type OperationStatus } from '../../src/domain/operation.ts'
import type { Json, OperationType } from '../../src/domain/operation-type.ts'
import type { Database } from '../../src/storage/database.ts'

export interface PlantedItem {
  key: string
  /** Entries of the ledger, oldest first; none: below the cursor without an outcome when `claimed`, else unprocessed. */
  entries?: { state: 'applied' | 'skipped' | 'failed' | 'uncertain'; failureClass?: FailureClass }[]
  claimed?: boolean
}

/** An operation with its items, one shard and its ledger as they would stand after a run; the counters agree with the ledger. */
export const plantOperation = async (
  database: Database,
  operation: {
    type: string
    status: OperationStatus
    items: PlantedItem[]
    tenantId?: number
    codeVersion?: string
    stopIf?: string[]
    replayOf?: string
    compensates?: string
    /** Of the chain; default: the operation itself. */
    rootId?: string
    effectKey?: (operation: { id: string; key: string }) => string
    cancelled?: boolean
    paused?: boolean
  },
): Promise<string> => {
  const { type, status, items, tenantId = 1, codeVersion = 'c1', cancelled = false, paused = false } = operation
  const id = uuidv7()
  await database.transaction(async ({ sql }) => {
    await sql`
      insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, risk, stop_if,
        root_id, replay_of, compensates, completed_at, cancel_requested_at, pause_requested_at)
      values (${tenantId}, ${id}::uuid, ${type}, 1, ${codeVersion}, ${status}, ${items.length}, 'tester', 'low',
        ${JSON.stringify(operation.stopIf ?? [])}::text::jsonb, ${operation.rootId ?? id}::uuid,
        ${operation.replayOf ?? null}::uuid, ${operation.compensates ?? null}::uuid,
        case when ${isFinal(status)} then clock_timestamp() end, case when ${cancelled} then clock_timestamp() end,
        case when ${paused} then clock_timestamp() end)`
    for (const [ord, item] of items.entries()) {
      const effectKey = operation.effectKey?.({ id, key: item.key }) ?? `${id}:${item.key}`
      await sql`
        insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
        values (${tenantId}, ${id}::uuid, ${ord}, ${item.key}, ${effectKey}, '{}', 'h')`
      for (const [index, { state, failureClass }] of (item.entries ?? []).entries()) {
        await sql`
          insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key,
            input_hash, source, code_version)
          values (${tenantId}, ${id}::uuid, ${ord}, ${item.key}, ${index + 1}, ${state},
            ${state === 'uncertain' ? 'ambiguous_effect' : (failureClass ?? null)}, ${effectKey}, 'h', 'worker', 'c1')`
      }
    }
    const outcomes = items.map((item) => item.entries?.at(-1))
    const count = (state: string): number => outcomes.filter((outcome) => outcome?.state === state).length
    const failedAs = (name: FailureClass): number =>
      outcomes.filter((outcome) => outcome?.state === 'failed' && outcome.failureClass === name).length
    const cursor = items.findLastIndex((item) => item.claimed || item.entries !== undefined) + 1
    await sql`
      insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state, applied,
        skipped, failed, uncertain, failed_transient, failed_validation_rejected, failed_conflict, failed_policy_denied,
        failed_bug_suspected, last_progress_at)
      values (${tenantId}, ${id}::uuid, 0, ${type}, 1, 0, ${items.length}, ${cursor},
        ${status === 'pending' || status === 'running' ? 'ready' : 'done'}, ${count('applied')}, ${count('skipped')},
        ${count('failed')}, ${count('uncertain')}, ${failedAs('transient')}, ${failedAs('validation_rejected')},
        ${failedAs('conflict')}, ${failedAs('policy_denied')}, ${failedAs('bug_suspected')},
        case when ${cursor} > 0 then clock_timestamp() end)`
  })
  return id
}

/** The effects of a planted operation, as they would stand after its run: applied by it. */
export const plantEffects = (database: Database, operationId: string): Promise<unknown> =>
  database.query(
    ({ sql }) => sql`
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
        input_hash, item_state, effect_ref, send_by)
      select i.tenant_id, i.effect_key, 'applied', 1, i.operation_id, 0, i.ord, 1, 1, i.item_key, 'h', 'applied',
        'ref:' || i.item_key, now()
      from operation_items i, lateral (
        select state from ledger_entries l where l.operation_id = i.operation_id and l.ord = i.ord
        order by seq desc limit 1) l
      where i.operation_id = ${operationId}::uuid and l.state = 'applied'`,
  )

/** A type that is never run. */
export const plantedType = (name: string, figures: Partial<OperationType> = {}): OperationType => ({
  name,
  version: 1,
  description: null,
  owner: null,
  effect: 'external',
  steps: [],
  endsIrreversibly: false,
  risk: 'low',
  touches: [],
  approval: 'none',
  idempotencyKey: 'optional',
  batch: { maxItems: 100, maxMs: 1_000 },
  parallelism: 1,
  concurrency: 16,
  ratePerSecond: null,
  leaseMs: 30_000,
  stallMs: 60_000,
  maxCancelMs: 30_000,
  retry: { maxAttempts: 3, baseMs: 500, maxMs: 30_000 },
  stopIf: [],
  retention: { itemsDays: 30, ledgerDays: 90 },
  mask: [],
  counts: 'exact',
  codeVersion: 'c1',
  onAbsent: 'retry',
  providerIdempotentMs: 0,
  compensation: 'none',
  noCompensationReason: null,
  inputSchema: {},
  validateInput: (_input: Json) => [],
  effectKey: ({ key }) => ({ key }),
  executor: {
    kind: 'external',
    callTimeoutMs: 5_000,
    send: () => Promise.reject(new Error('a planted type is never run')),
    lookup: null,
  },
  callback: null,
  compensator: null,
  close: async () => {},
  ...figures,
})

/** A registry of these types. */
export const plantedTypes = (...types: OperationType[]) => ({
  get: (name: string) => types.find((type) => type.name === name),
  list: () => types,
})
