/**
 * Everything that a sequence may change, from one statement, and the same as the model has it. One text a fact, so that a
 * difference reads like a sentence; what only grows (versions) is checked by itself.
 */
import { isFinal } from '../../src/domain/operation.ts'
import type { Database } from '../../src/storage/database.ts'
import {
  countsOf,
  type Item,
  intentsOf,
  itemsOf,
  keyOf,
  type Operation,
  outcomeOf,
  type Shard,
  type World,
} from './world.ts'

export interface Snapshot {
  facts: string[]
  versions: Map<string, number>
  /** The open case of an item: `operation/ord` → its id. */
  caseIds: Map<string, string>
}

interface Row {
  facts: string[] | null
  versions: [string, number][] | null
  cases: [string, string][] | null
}

/** Operations are named by their place in the sequence, so that two runs of it read alike. */
const named = (ids: readonly string[], facts: readonly string[]): string[] =>
  facts.map((fact) => ids.reduce((text, id, index) => text.replaceAll(id, `op${index}`), fact)).sort()

export const readSnapshot = async (database: Database, ids: readonly string[]): Promise<Snapshot> => {
  const list = `{${ids.join(',')}}`
  const [row] = await database.query(
    ({ sql }) => sql<Row>`
      with ids as materialized (select unnest(${list}::uuid[]) as id),
      s as materialized (select s.* from ids join operation_shards s on s.tenant_id = 1 and s.operation_id = ids.id),
      r as materialized (select r.* from ids join item_retries r on r.tenant_id = 1 and r.operation_id = ids.id),
      c as materialized (select c.* from ids join reconciliation_cases c on c.tenant_id = 1 and c.operation_id = ids.id),
      l as materialized (select l.* from ids join ledger_entries l on l.tenant_id = 1 and l.operation_id = ids.id),
      fact (text) as (
        select format('%s is %s cancelled=%s paused=%s started=%s final=%s total=%s', o.id, o.status,
          o.cancel_requested_at is not null, o.pause_requested_at is not null, o.started_at is not null,
          o.completed_at is not null, o.items_total)
        from ids join operations o on o.tenant_id = 1 and o.id = ids.id
        union all
        select format('%s shard %s [%s,%s) at %s is %s epoch=%s stop=%s seen=%s in_flight=%s waiting=%s counts=%s/%s/%s/%s failed=%s/%s/%s/%s/%s late=%s',
          operation_id, shard, from_ord, to_ord, cursor, state, lease_epoch, coalesce(stop_requested, '-'),
          stop_seen_at is not null, in_flight, waiting, applied, skipped, failed, uncertain, failed_transient,
          failed_validation_rejected, failed_conflict, failed_policy_denied, failed_bug_suspected, applied_after_cancel)
        from s
        union all
        select format('%s item %s: %s', operation_id, ord, string_agg(format('%s%s %s/%s/%s #%s &%s', source,
          case step when '' then '' else ' ' || step end, coalesce(state, '-'), coalesce(failure_class, '-'),
          coalesce(reason_code, '-'), attempt, coalesce(send::text, '-')), ', ' order by seq))
        from l group by operation_id, ord
        union all
        select format('%s item %s waits at "%s" #%s %s %s for %s', operation_id, ord, step, attempt, reason,
          concat_ws('/', prior_state, prior_class), effect_key)
        from r
        union all
        select format('%s item %s has an open case %s of %s at "%s" &%s', operation_id, ord, cause, effect_key, step, send)
        from c where closed_at is null
        union all
        select format('%s item %s was resolved %s', operation_id, ord, string_agg(resolution, ', ' order by resolution))
        from c where closed_at is not null group by operation_id, ord
        union all
        select format('effect %s is %s &%s of %s/%s/%s "%s" #%s epoch=%s', e.effect_key, e.state, e.send, e.operation_id,
          e.shard, e.ord, e.step, e.attempt, e.lease_epoch)
        from ids join effects e on e.tenant_id = 1 and e.operation_id = ids.id
        union all
        select format('%s item %s is a dead letter %s of %s by %s', d.operation_id, d.ord, d.failure_class, d.effect_key,
          d.fingerprint)
        from ids join dead_letters d on d.tenant_id = 1 and d.operation_id = ids.id)
      select (select json_agg(text) from fact) as facts,
        (select json_agg(json_build_array(o.id, o.version + (select sum(version) from s where s.operation_id = o.id)))
          from ids join operations o on o.tenant_id = 1 and o.id = ids.id) as versions,
        (select json_agg(json_build_array(operation_id || '/' || ord, id)) from c where closed_at is null) as cases`,
  )
  return {
    facts: named(ids, row?.facts ?? []),
    versions: new Map(row?.versions ?? []),
    caseIds: new Map(row?.cases ?? []),
  }
}

const bool = (value: boolean): string => (value ? 't' : 'f')

const shardFact = (world: World, operation: Operation, shard: Shard): string => {
  const items = itemsOf(operation, shard)
  const { applied, skipped, failed, uncertain } = countsOf(items)
  const classes = ['transient', 'validation_rejected', 'conflict', 'policy_denied', 'bug_suspected'].map(
    (name) => items.filter((item) => isFailedAs(item, name)).length,
  )
  return (
    `${operation.id} shard ${shard.index} [${shard.fromOrd},${shard.toOrd}) at ${shard.cursor} is ${shard.state} ` +
    `epoch=${shard.epoch} stop=${shard.stop ?? '-'} seen=${bool(shard.stopSeen)} ` +
    `in_flight=${intentsOf(world, operation, shard).length} waiting=${items.filter(({ retry }) => retry).length} ` +
    `counts=${applied}/${skipped}/${failed}/${uncertain} failed=${classes.join('/')} late=${shard.appliedAfterCancel}`
  )
}

const isFailedAs = (item: Item, name: string): boolean => {
  const outcome = outcomeOf(item)
  return outcome?.state === 'failed' && outcome.failureClass === name
}

const itemFacts = (operation: Operation, item: Item): string[] => {
  const name = `${operation.id} item ${item.ord}`
  const { entries, retry, open, resolutions } = item
  const told = entries.map(
    ({ source, step, state, failureClass, reasonCode, attempt, send }) =>
      `${source}${step === '' ? '' : ` ${step}`} ${state ?? '-'}/${failureClass ?? '-'}/${reasonCode ?? '-'} #${attempt} &${send ?? '-'}`,
  )
  const outcome = outcomeOf(item)
  const prior = [outcome?.state, outcome?.state === 'failed' ? outcome.failureClass : null].filter(Boolean).join('/')
  return [
    ...(told.length > 0 ? [`${name}: ${told.join(', ')}`] : []),
    ...(retry
      ? [`${name} waits at "${retry.step}" #${retry.attempt} ${retry.reason} ${prior} for ${keyOf(item, retry.step)}`]
      : []),
    ...(open ? [`${name} has an open case ${open.cause} of ${open.effectKey} at "${open.step}" &${open.send}`] : []),
    ...(resolutions.length > 0 ? [`${name} was resolved ${[...resolutions].sort().join(', ')}`] : []),
  ]
}

export const describe = (world: World): string[] => {
  const ids = world.operations.map((operation) => operation.id)
  const facts = world.operations.flatMap((operation) => [
    `${operation.id} is ${operation.status} cancelled=${bool(operation.cancelled)} paused=${bool(operation.paused)} ` +
      `started=${bool(operation.started)} final=${bool(isFinal(operation.status))} total=${operation.items.length}`,
    ...operation.shards.map((shard) => shardFact(world, operation, shard)),
    ...operation.items.flatMap((item) => itemFacts(operation, item)),
  ])
  for (const effect of world.effects.values()) {
    facts.push(
      `effect ${effect.key} is ${effect.state} &${effect.send} of ${effect.operationId}/${effect.shard}/${effect.ord} ` +
        `"${effect.step}" #${effect.attempt} epoch=${effect.epoch}`,
    )
  }
  for (const { operationId, ord, failureClass, effectKey, fingerprint } of world.deadLetters) {
    facts.push(`${operationId} item ${ord} is a dead letter ${failureClass} of ${effectKey} by ${fingerprint}`)
  }
  return named(ids, facts)
}
