/**
 * What a compensation does to the effects that it undoes. It runs like any other operation (see lease.ts), with effect keys
 * of its own; and in the transaction in which such an effect becomes `applied`, by whatever evidence, the effect that it
 * undoes goes
 *
 *   applied ─▶ compensated        fenced by its send and by the operation that is compensated
 *
 * and that operation's ledger gets an observation of it. So at every moment both say the same: a crash before the commit
 * leaves both as they were, and evidence that is told again finds neither to move.
 *
 * An item with steps is undone as a whole, by one effect of the compensation. The fence is its last step, whose send the key
 * names: while that still is the one that this operation applied, nobody has begun the item anew, as a last step that is
 * applied is never sent. Then every step that is `applied` goes to `compensated`, also one that an earlier operation of the
 * replay chain applied; which steps there are stands in the shards of the compensated operation. All of it is one commit, so
 * nobody finds an item that is half undone.
 *
 * What is `compensated` may be claimed again, with send + 1, and its undoing then has another key: nothing is undone twice
 * by a compensation that comes late.
 *
 * Locks (L1): own shard → own effects by key → effects undone by key, the fence checked on the locked rows. Nobody who holds
 * an effect of the second kind waits for one of the first: keys of compensations belong to their own operations only, and no
 * item can be given one. Of the compensated operation nothing is locked: its counters and version stay as they are, since
 * what its resource shows does.
 */
import { parseCompensationKey, type UndoneEffect } from '../../domain/compensation.ts'
import { formatId } from '../../domain/ids.ts'
import type { EvidenceSource } from '../../domain/ledger.ts'
import { ints, texts } from '../array-literal.ts'
import type { Sql } from '../connection.ts'
import type { ShardKey } from './lease.ts'

/** What to mark once the effect of its compensation is applied. One compensation may undo several. */
export interface Undoing extends UndoneEffect {
  compensationKey: string
}

const columns = (
  undoings: readonly Undoing[],
): { compensations: string; keys: string; steps: string; sends: string } => ({
  compensations: texts(undoings.map(({ compensationKey }) => compensationKey)),
  keys: texts(undoings.map(({ effectKey }) => effectKey)),
  steps: texts(undoings.map(({ step }) => step)),
  sends: ints(undoings.map(({ send }) => send)),
})

/** The evidence of a converge, as far as it matters here. */
interface Applied {
  source: Exclude<EvidenceSource, 'late_worker'>
  epoch: number
  workerId: string | null
  actor: string | null
  codeVersion: string
}

/**
 * Marks the effects whose undoing is applied now as `compensated`. Runs behind the statement that brought this about, in its
 * transaction. What is not (or no more) to be marked is left alone.
 */
export const markCompensated = async (
  sql: Sql,
  shard: ShardKey,
  undoings: readonly Undoing[],
  evidence: Applied,
): Promise<void> => {
  const { compensations, keys, steps, sends } = columns(undoings)
  // told beforehand, for the planner: without steps it is one row each
  const hasSteps = undoings.some(({ step }) => step !== '')
  await sql`
    with u as materialized (
      select * from unnest(${compensations}::text[], ${keys}::text[], ${steps}::text[], ${sends}::int[])
        as u (compensation_key, effect_key, last_step, send)),
    me as materialized (
      select o.compensates, undone.steps, s.state = 'leased' and s.lease_epoch = ${evidence.epoch} as mine
      from operations o join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id
          and s.shard = ${shard.shard}
        join operation_shards undone on undone.tenant_id = o.tenant_id and undone.operation_id = o.compensates
          and undone.shard = 0
      where o.tenant_id = ${shard.tenantId} and o.id = ${shard.operationId}::uuid and s.compensating),
    part as materialized (
      select u.compensation_key, u.last_step, u.send as fence_send, s.step, step_effect_key(u.effect_key, s.step) as effect_key
      from me, u
        join effects c on c.tenant_id = ${shard.tenantId} and c.effect_key = u.compensation_key and c.state = 'applied'
          and c.operation_id = ${shard.operationId}::uuid,
        lateral unnest(case when ${hasSteps}::boolean and u.last_step <> '' then me.steps else array[''] end) as s (step)),
    held as materialized (
      select p.compensation_key, p.step = p.last_step and e.send = p.fence_send as fences, p.step, e.tenant_id, e.effect_key,
        e.operation_id, e.ord, e.state
      from part p join effects e on e.tenant_id = ${shard.tenantId} and e.effect_key = p.effect_key
      order by e.effect_key
      for no key update of e),
    undone as materialized (
      select h.compensation_key, h.ord from me, held h
      where h.fences and h.operation_id = me.compensates and h.state = 'applied'),
    marked as (
      update effects e set was = e.state, state = 'compensated', updated_at = clock_timestamp()
      from undone x join held h using (compensation_key)
      where h.state = 'applied' and e.tenant_id = h.tenant_id and e.effect_key = h.effect_key
      returning x.ord, h.step, e.effect_key, e.send, e.effect_ref)
    insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, reason_code, effect_key, send,
      input_hash, effect_ref, evidence_ref, source, actor, worker_id, code_version)
    select ${shard.tenantId}, me.compensates, m.ord, l.item_key, m.step, l.attempt, null, 'COMPENSATED', m.effect_key, m.send,
      l.input_hash, m.effect_ref, ${formatId('op', shard.operationId)},
      case when ${evidence.source} = 'worker' and not me.mine then 'late_worker' else ${evidence.source} end,
      ${evidence.actor}, ${evidence.workerId}::uuid, ${evidence.codeVersion}
    from me, marked m, lateral (
      select l.item_key, l.attempt, l.input_hash from ledger_entries l
      where l.tenant_id = ${shard.tenantId} and l.operation_id = me.compensates and l.ord = m.ord
      order by l.seq desc limit 1) l
    order by m.ord, array_position(me.steps, m.step)`
}

/** What compensations undo; effect keys of others name nothing. */
export const undoingsOf = (compensations: readonly { effectKey: string }[]): Undoing[] =>
  compensations.flatMap(({ effectKey }) => {
    const undone = parseCompensationKey(effectKey)
    return undone === null ? [] : [{ ...undone, compensationKey: effectKey }]
  })

/**
 * Locks the effects that a batch is about to undo, before its handler locks rows of its own: an ordinary batch takes its
 * effects first too, so the two wait for each other and never in a circle.
 */
export const lockUndone = async (sql: Sql, tenantId: number, undoings: readonly Undoing[]): Promise<void> => {
  await sql`
    select 1 from effects where tenant_id = ${tenantId} and effect_key = any(${columns(undoings).keys}::text[])
    order by effect_key for no key update`
}
