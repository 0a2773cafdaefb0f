/**
 * What no single look can tell: I2, I4 and I5 between two looks. Each look is one statement, so one snapshot, and is held
 * against the one before.
 *
 * Why what it finds is a fault, and never a race: whoever claims a window, moves a cursor or finishes holds the row of its
 * shard until its commit. So if a look has seen epoch e, everything under an older epoch was committed before it, and its
 * `claimed_at` is older than a clock that is read in that look's statement, behind the snapshot.
 */
import type postgres from 'postgres'
import { canTransition, isFinal, OPERATION_STATUSES, type OperationStatus } from '../../src/domain/operation.ts'
import { uuidOf } from './states-account.ts'
import type { Invariant, Violation } from './violation.ts'

interface ShardLook {
  shard: number
  state: 'ready' | 'leased' | 'done'
  epoch: number
  owner: string | null
  cursor: number
  version: number
  applied: number
  skipped: number
}

interface Look {
  id: string
  status: OperationStatus
  version: number
  total: number
  entries: number
  /** Microseconds of the database's clock, taken behind the snapshot. */
  at: string
  shards: ShardLook[]
}

export interface Watcher {
  /** Looks again at these operations (`op_…`): what has gone backwards since the look before. */
  look(ids: readonly string[]): Promise<Violation[]>
}

export const createWatcher = (sql: postgres.Sql): Watcher => {
  const looks = new Map<string, Look>()
  return {
    async look(ids) {
      const now = await readLooks(sql, ids.map(uuidOf))
      const pairs = now.flatMap((look) => {
        const before = looks.get(look.id)
        return before === undefined ? [] : [{ before, now: look }]
      })
      const found = [
        ...pairs.flatMap(({ before, now }) => [...compareOperations(before, now), ...compareShards(before, now)]),
        ...(await findStrangers(sql, pairs)),
      ]
      const gone = [...looks.keys()].filter(
        (id) => ids.some((known) => uuidOf(known) === id) && !now.some((look) => look.id === id),
      )
      for (const look of now) looks.set(look.id, look)
      return [
        ...found,
        ...gone.map((id): Violation => ({ invariant: 'I7', subject: id, says: 'was there, and is gone' })),
      ]
    },
  }
}

const readLooks = (sql: postgres.Sql, ids: readonly string[]): Promise<Look[]> => sql<Look[]>`
  select o.id, o.status, o.version::float8 as version, o.items_total::float8 as total,
    (select count(*)::float8 from ledger_entries l where l.tenant_id = o.tenant_id and l.operation_id = o.id) as entries,
    clock_timestamp()::text as at, coalesce(s.shards, '[]') as shards
  from operations o left join lateral (
    select jsonb_agg(jsonb_build_object('shard', s.shard, 'state', s.state, 'epoch', s.lease_epoch, 'owner', s.lease_owner,
      'cursor', s.cursor, 'version', s.version, 'applied', s.applied, 'skipped', s.skipped) order by s.shard) as shards
    from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id) s on true
  where o.id = any(${ids as string[]}::uuid[])`

/** Every status that may be reached from another, however many steps lie between. */
const REACHABLE = new Map(
  OPERATION_STATUSES.map((from) => {
    const reached = new Set<OperationStatus>([from])
    for (const status of reached) for (const to of OPERATION_STATUSES) if (canTransition(status, to)) reached.add(to)
    return [from, reached] as const
  }),
)

const mayBecome = (from: OperationStatus, to: OperationStatus): boolean => REACHABLE.get(from)?.has(to) === true

const compareOperations = (before: Look, now: Look): Violation[] => {
  const found: Violation[] = []
  const says = (invariant: Invariant, text: string): void => void found.push({ invariant, subject: now.id, says: text })
  if (now.version < before.version) says('I5', `version ${before.version} became ${now.version}`)
  if (now.version === before.version && now.status !== before.status) {
    says('I5', `is ${now.status} at version ${now.version}, and was ${before.status}`)
  }
  if (!mayBecome(before.status, now.status)) {
    says(
      'I5',
      isFinal(before.status)
        ? `left ${before.status} for ${now.status}`
        : `went from ${before.status} to ${now.status}`,
    )
  }
  if (now.entries < before.entries) says('I2', `the ledger had ${before.entries} entries, and has ${now.entries}`)
  if (now.total < before.total) says('I7', `had ${before.total} items, and has ${now.total}`)
  return found
}

const compareShards = (before: Look, now: Look): Violation[] => {
  const found: Violation[] = []
  const after = new Map(now.shards.map((shard) => [shard.shard, shard]))
  for (const was of before.shards) {
    const is = after.get(was.shard)
    const subject = `${now.id}/${was.shard}`
    const says = (invariant: Invariant, text: string): void => void found.push({ invariant, subject, says: text })
    if (is === undefined) {
      says('I7', 'was there, and is gone')
      continue
    }
    if (is.epoch < was.epoch) says('I4', `epoch ${was.epoch} became ${is.epoch}`)
    if (is.cursor < was.cursor) says('I4', `the cursor went back from ${was.cursor} to ${is.cursor}`)
    if (is.version < was.version) says('I5', `version ${was.version} became ${is.version}`)
    if (is.applied < was.applied) says('I2', `applied ${was.applied} fell to ${is.applied}`)
    if (is.skipped < was.skipped) says('I2', `skipped ${was.skipped} fell to ${is.skipped}`)
    if (is.epoch !== was.epoch) continue
    if (was.state !== 'leased' && is.cursor !== was.cursor)
      says('I4', `the cursor moved to ${is.cursor}, and nobody held it`)
    if (was.state !== 'leased' && is.state === 'leased')
      says('I4', `is leased under epoch ${is.epoch}, which was given back`)
    if (was.owner !== null && is.owner !== null && is.owner !== was.owner) {
      says('I4', `epoch ${is.epoch} was ${was.owner}'s, and is ${is.owner}'s`)
    }
  }
  return found
}

interface Claimed {
  subject: string
  says: string
}

/** I4: what was claimed or reported since the look before, by whom the shard no longer belonged to then. */
const findStrangers = async (
  sql: postgres.Sql,
  pairs: readonly { before: Look; now: Look }[],
): Promise<Violation[]> => {
  const since = pairs.flatMap(({ before, now }) =>
    before.shards.flatMap((was) => {
      const is = now.shards.find((shard) => shard.shard === was.shard)
      return is === undefined
        ? []
        : [
            {
              id: now.id,
              shard: was.shard,
              epoch: was.epoch,
              at: before.at,
              owners: ownersBetween(was, is),
              until: is.epoch,
            },
          ]
    }),
  )
  if (since.length === 0) return []
  const rows = await sql<Claimed[]>`
    with w as materialized (
      select o.tenant_id, w.* from jsonb_to_recordset(${JSON.stringify(since)}::text::jsonb)
        as w (id uuid, shard int, epoch bigint, at timestamptz, owners jsonb, until bigint) join operations o on o.id = w.id)
    select e.effect_key as subject, format('was claimed under epoch %s, when its shard was at %s', e.lease_epoch, w.epoch) as says
    from w join operation_shards s on s.tenant_id = w.tenant_id and s.operation_id = w.id and s.shard = w.shard
      join operation_items i on i.tenant_id = w.tenant_id and i.operation_id = w.id and i.ord >= s.from_ord and i.ord < s.to_ord
      cross join lateral unnest(case when s.steps = '{}' then array[''] else s.steps end) as t (step)
      join effects e on e.tenant_id = w.tenant_id and e.effect_key = step_effect_key(i.effect_key, t.step)
        and e.operation_id = w.id and e.shard = w.shard
    where e.lease_epoch < w.epoch and e.claimed_at > w.at
    union all
    select format('%s/%s', l.operation_id, l.ord), format('%s reported %s as its worker, and the shard was not its own',
      l.worker_id, coalesce(l.state, l.reason_code))
    from w join operation_shards s on s.tenant_id = w.tenant_id and s.operation_id = w.id and s.shard = w.shard
      join ledger_entries l on l.tenant_id = w.tenant_id and l.operation_id = w.id and l.ord >= s.from_ord and l.ord < s.to_ord
    where w.owners is not null and l.observed_at > w.at and l.source = 'worker'
      -- what an undoing notes with the undone is signed by the worker of the undoing
      and l.reason_code is distinct from 'COMPENSATED' and not w.owners ? l.worker_id::text
      -- another claim since the look: its worker may have reported by now
      and s.lease_epoch = w.until`
  return rows.map((row): Violation => ({ invariant: 'I4', ...row }))
}

/** Who can have held a shard between two looks; null: there were claims that no look has seen. */
const ownersBetween = (was: ShardLook, is: ShardLook): string[] | null => {
  const held = was.owner === null ? [] : [was.owner]
  if (is.epoch === was.epoch) return held
  return is.epoch === was.epoch + 1 && is.owner !== null ? [...held, is.owner] : null
}
