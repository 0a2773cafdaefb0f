import type { EffectState } from '../../domain/effect.ts'
import type { EvidenceSource } from '../../domain/ledger.ts'
import { texts } from '../array-literal.ts'
import type { Database } from '../database.ts'
import type { Report } from './evidence.ts'
import type { ShardKey } from './lease.ts'

/**
 * Evidence for an effect that has moved on (an older send, or a contradiction): it is written down as an observation, which
 * changes no item, and a case is opened for a person, or noted on the case that the item has. Nothing is overwritten.
 */
export const recordObservation = (
  database: Database,
  shard: ShardKey,
  observation: {
    cause: 'duplicate_suspected' | 'contradiction'
    source: EvidenceSource
    actor: string | null
    workerId: string | null
    codeVersion: string
    report: Report
  },
): Promise<void> =>
  database.transaction(async ({ sql }) => {
    const { report } = observation
    await sql`
      select 1 from operation_shards
      where tenant_id = ${shard.tenantId} and operation_id = ${shard.operationId}::uuid and shard = ${shard.shard}
      for no key update`
    const [written] = await sql<{ item_key: string }>`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, reason_code, message,
        effect_key, send, input_hash, effect_ref, evidence_ref, source, actor, worker_id, code_version)
      select e.tenant_id, ${shard.operationId}::uuid, ${report.ord}, l.item_key, e.step, l.attempt, null,
        ${observation.cause === 'contradiction' ? 'CONTRADICTS_EARLIER_EVIDENCE' : 'EVIDENCE_FOR_EARLIER_SEND'},
        ${`reported: ${report.effect}`}, ${report.effectKey}, ${report.send}, l.input_hash, ${report.effectRef},
        ${report.evidenceRef}, ${observation.source}, ${observation.actor}, ${observation.workerId}::uuid,
        ${observation.codeVersion}
      from effects e, lateral (
        select item_key, attempt, input_hash from ledger_entries l
        where l.tenant_id = ${shard.tenantId} and l.operation_id = ${shard.operationId}::uuid and l.ord = ${report.ord}
        order by seq desc limit 1) l
      where e.tenant_id = ${shard.tenantId} and e.effect_key = ${report.effectKey}
        -- the same event, received again or judged by two at once, is one observation
        and (${observation.source} <> 'callback' or not exists (
          select from ledger_entries k
          where k.tenant_id = ${shard.tenantId} and k.operation_id = ${shard.operationId}::uuid and k.ord = ${report.ord}
            and k.source = 'callback' and k.evidence_ref = ${report.evidenceRef}))
      returning item_key`
    if (!written) return
    await sql`
      insert into reconciliation_cases as c (tenant_id, operation_id, shard, ord, type, item_key, step, effect_key, send, cause,
        note)
      select s.tenant_id, s.operation_id, s.shard, ${report.ord}, s.type, ${written.item_key}, e.step, ${report.effectKey},
        ${report.send}, ${observation.cause}, ${`reported: ${report.effect}`}
      from operation_shards s
        join effects e on e.tenant_id = s.tenant_id and e.effect_key = ${report.effectKey}
      where s.tenant_id = ${shard.tenantId} and s.operation_id = ${shard.operationId}::uuid and s.shard = ${shard.shard}
      on conflict (tenant_id, operation_id, ord) where closed_at is null do update set
        note = concat_ws('; ', c.note, concat_ws(': ', excluded.cause, nullif(excluded.step, ''), excluded.note))
      -- an item has one open case, and its steps are effects of their own: each is named once
      where (c.cause, c.effect_key) <> (excluded.cause, excluded.effect_key)
        and position(concat_ws(': ', excluded.cause, nullif(excluded.step, '')) in coalesce(c.note, '')) = 0`
    await sql`
      update operation_shards set version = version + 1, last_progress_at = clock_timestamp()
      where tenant_id = ${shard.tenantId} and operation_id = ${shard.operationId}::uuid and shard = ${shard.shard}`
  })

/** Where an effect stands, and whose it is. */
export interface EffectStanding {
  effectKey: string
  state: EffectState
  send: number
  operationId: string
  shard: number
  ord: number
}

/** Where effects stand, by key; unknown keys are missing. */
export const readEffects = async (
  database: Database,
  tenantId: number,
  effectKeys: readonly string[],
): Promise<Map<string, EffectStanding>> => {
  const rows = await database.query(
    ({ sql }) => sql<EffectStanding>`
      select effect_key as "effectKey", state, send, operation_id as "operationId", shard, ord from effects
      where tenant_id = ${tenantId} and effect_key = any(${texts(effectKeys)}::text[])`,
  )
  return new Map(rows.map((row) => [row.effectKey, row]))
}
