/**
 * The steps of the search on the real statements, and what the rows say behind each. What happens in the memory of a worker
 * or at the provider touches no row; time is moved by the hand of the test, in the two columns that stand for it.
 */
import { randomUUID } from 'node:crypto'
import { absenceReport } from '../../src/services/absence-report.ts'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report as evidenceReport } from '../../src/services/evidence-reports.ts'
import { sentReport, unsentReport } from '../../src/services/outcome-reports.ts'
import { settleOperation } from '../../src/services/settle.ts'
import type { Database } from '../../src/storage/database.ts'
import { closeExplainedDoubts, queueResend, takeDueLookups } from '../../src/storage/lookups.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards, claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { converge } from '../../src/storage/run/converge.ts'
import { endLease } from '../../src/storage/run/end-lease.ts'
import type { Evidence, Report } from '../../src/storage/run/evidence.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { acknowledgeStops, readLeases, renewLeases } from '../../src/storage/run/heartbeat.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readOrphanedIntents } from '../../src/storage/run/window.ts'
import { markStarted } from '../../src/storage/settle.ts'
import { requestCancel, requestPause, resume } from '../../src/storage/stops.ts'
import { plantedType } from '../support/planted-operation.ts'
import { expireLease, GRANT, NO_WAKE_UPS, storeOperation, TENANT } from '../support/races.ts'
import type { Action, CallStep, ItemStep, WorkerStep, WorldStep } from './actions.ts'
import { ATTEMPTS_MAX, type Call, type State, type World } from './state.ts'
import { countsOf, inFlight, waiting } from './statements.ts'

const TYPE = plantedType(GRANT.name, { retry: { maxAttempts: ATTEMPTS_MAX, baseMs: 0, maxMs: 0 } })
const CLAIM = { sendByMs: 1_000_000, resendWithinMs: 3_600_000 }
const WORKER_IDS = [randomUUID(), randomUUID()]

export interface Replay {
  perform(before: State, action: Action, after: State): Promise<void>
  /** The rows, as `rowsOf` would tell them of the state. */
  read(): Promise<unknown>
}

export const startReplay = async (database: Database, world: World): Promise<Replay> => {
  const operationId = await storeOperation(database, {
    items: world.keys.map((key, ord) => ({ key: `i${ord}`, effectKey: `key ${key}` })),
  })
  const shard = { tenantId: TENANT, operationId, shard: 0 }
  const stop = { tenantId: TENANT, operationId, actor: 'tester', reason: null }
  const leases: (ClaimedShard | undefined)[] = []
  const keyOf = (ord: number): string => `key ${world.keys[ord]}`
  const expectSame = (what: string, found: unknown, expected: unknown): void => {
    if (JSON.stringify(found) !== JSON.stringify(expected)) {
      throw new Error(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`)
    }
  }
  const leaseOf = (worker: number): ClaimedShard => {
    const lease = leases[worker]
    if (!lease) throw new Error('the worker has claimed nothing')
    return lease
  }

  const hold = async (worker: number, claimed: readonly ClaimedShard[]): Promise<void> => {
    const [lease] = claimed
    if (!lease) throw new Error('there was nothing to claim')
    leases[worker] = lease
    if (lease.stopRequested === null) await database.query((sql) => markStarted(sql, TENANT, operationId))
  }

  /** The converge of the services, without the settling that follows it: that is a step of its own here. */
  const tell = async (evidence: Pick<Evidence, 'source' | 'epoch'>, report: Report): Promise<void> => {
    const whole: Evidence = {
      ...evidence,
      workerId: null,
      actor: null,
      codeVersion: 'c1',
      lookupAfterMs: null,
      reports: [report],
    }
    const { moved } = await converge(database, shard, whole)
    if (moved.size === 0) await convergeEvidence({ database, wakeUps: NO_WAKE_UPS }, shard, whole)
  }

  const performWorker = async (before: State, after: State, step: WorkerStep, worker: number): Promise<void> => {
    const claim = { workerId: WORKER_IDS[worker] ?? '', types: [GRANT], limit: 1, perTenant: 1, afterTenant: 0 }
    const run = before.runs[worker]
    switch (step) {
      case 'claims the shard':
        return hold(worker, (await database.query((sql) => claimReadyShards(sql, claim))).shards)
      case 'takes the shard over':
        return hold(worker, await database.query((sql) => claimExpiredShards(sql, claim)))
      case 'looks for orphans': {
        const orphans = await database.query((sql) => readOrphanedIntents(sql, leaseOf(worker), 10))
        const expected = after.runs[worker]?.calls.flatMap((call, ord) => (call?.at === 'orphan' ? [ord] : []))
        return expectSame('orphans', orphans.map(({ ord }) => ord).sort(), expected)
      }
      case 'claims a window': {
        const lease = leaseOf(worker)
        const from = run?.cursor ?? 0
        const to = Math.min(world.keys.length, from + world.window)
        const won = await database.query((sql) => claimIntents(sql, lease, { from, to, ...CLAIM }))
        return expectSame('the fence', won !== null, after.shard.cursor !== before.shard.cursor)
      }
      case 'hears of the shard': {
        const [heard] = await database.query((sql) => readLeases(sql, [leaseOf(worker)]))
        return expectSame(
          'the lease',
          heard ? heard.stopRequested : 'lost',
          after.runs[worker]?.lost ? 'lost' : after.shard.stop,
        )
      }
      case 'renews its lease':
        return expectSame(
          'renewals',
          (await database.query((sql) => renewLeases(sql, claim.workerId, [leaseOf(worker)]))).length,
          1,
        )
      case 'acknowledges the stop': {
        const seen = run?.stop ?? null
        if (seen === null) throw new Error('a stop that nobody saw')
        return database.query((sql) => acknowledgeStops(sql, [{ ...leaseOf(worker), stop: seen }]))
      }
      case 'finishes': {
        const finished = await finishShard(database, leaseOf(worker))
        return expectSame(
          'the finish',
          finished?.state ?? null,
          after.shard.state === before.shard.state ? null : after.shard.state,
        )
      }
      case 'ends in a fault': {
        const lease = leaseOf(worker)
        const end = { dueInMs: 0, claims: lease.claimsBefore, charge: null }
        const ended = await database.query((sql) => endLease(sql, lease, end))
        return expectSame('the end', ended, after.shard.expired && !before.shard.expired)
      }
      case 'crashes':
        return
    }
  }

  const reportOf = (ord: number, call: Call): Report => {
    const intent = {
      ord,
      key: `i${ord}`,
      effectKey: keyOf(ord),
      send: call.send,
      attempt: call.attempt,
      resend: call.resend,
    }
    switch (call.at) {
      case 'applied':
        return sentReport(TYPE, intent, { state: 'applied' })
      case 'refused':
        return sentReport(TYPE, intent, { state: 'failed', failureClass: 'transient', reasonCode: 'BUSY' })
      case 'lost':
        return sentReport(TYPE, intent, { state: 'uncertain', reasonCode: 'TIMEOUT' })
      case 'unsent':
        return unsentReport(intent)
      case 'orphan':
        return evidenceReport(intent, { effect: 'uncertain', item: 'uncertain', reasonCode: 'WORKER_LOST' })
      default:
        throw new Error(`nothing is to be told of a call that is ${call.at}`)
    }
  }

  const performCall = async (
    before: State,
    after: State,
    step: CallStep,
    worker: number,
    ord: number,
  ): Promise<void> => {
    const call = before.runs[worker]?.calls[ord]
    switch (step) {
      case 'claims the retry': {
        const won = await claimRetries(database, leaseOf(worker), [ord], CLAIM)
        const claimed = after.runs[worker]?.calls[ord] ?? null
        return expectSame('the retry', won?.map(({ send }) => send) ?? null, claimed ? [claimed.send] : null)
      }
      case 'explains the known key':
        await explainKnownKeys(database, leaseOf(worker), [ord], 'c1')
        return
      case 'calls the orphan uncertain':
      case 'writes the answer':
        if (call)
          await tell(
            { source: call.at === 'orphan' ? 'recovery' : 'worker', epoch: leaseOf(worker).epoch },
            reportOf(ord, call),
          )
        return
      case 'checks and sends':
      case 'checks, and is frozen before the socket':
      case 'thaws, and sends':
      case 'gives the call up':
        return
    }
  }

  const performWorld = async (before: State, step: WorldStep): Promise<void> => {
    switch (step) {
      case 'the lease runs out':
        return expireLease(database, shard)
      case 'a cancel is stored':
        return expectSame('the cancel', await requestCancel(database, stop), true)
      case 'a pause is stored':
        return expectSame('the pause', await requestPause(database, stop), true)
      case 'the pause is taken back':
        return expectSame('the resumption', await resume(database, stop), true)
      case 'the status is settled':
        await settleOperation({ database, wakeUps: NO_WAKE_UPS }, TENANT, operationId)
        return
      case 'the evidence is brought home': {
        const { found } = before
        if (found === null) return
        const decision = found.retry
          ? ({ kind: 'absent-retry' } as const)
          : ({ kind: 'absent-failed', deadLetter: found.source === 'lookup' } as const)
        const said =
          found.said === 'applied'
            ? ({ effect: 'applied', item: 'applied' } as const)
            : absenceReport(TYPE, decision, { attempt: 1, evidenceRef: 'seen' })
        const about = { ord: found.ord, effectKey: keyOf(found.ord), send: found.send }
        return tell({ source: found.source, epoch: 0 }, evidenceReport(about, said))
      }
    }
  }

  const performItem = async (step: ItemStep, ord: number): Promise<void> => {
    switch (step) {
      case 'the provider is asked':
      case 'a person looks':
      case 'a callback says applied':
        return
      case 'a resend is queued': {
        const [row] = await database.query(
          ({ sql }) => sql<{ id: string }>`
            select id from reconciliation_cases
            where operation_id = ${operationId}::uuid and ord = ${ord} and closed_at is null`,
        )
        const [due] = await database.query((sql) =>
          takeDueLookups(sql, {
            types: [GRANT.name],
            limit: 1,
            holdMs: 1_000,
            only: { tenantId: TENANT, caseId: row?.id ?? '' },
          }),
        )
        return expectSame('the resend', due !== undefined && (await queueResend(database, due)), true)
      }
      case 'nothing can arrive any more':
        await database.query(
          ({ sql }) => sql`
            update effects set send_by = now() - interval '1 day' where tenant_id = ${TENANT} and effect_key = ${keyOf(ord)}`,
        )
        return
      case 'the doubt is closed':
        await closeExplainedDoubts(database, { ...shard, ords: [ord] })
    }
  }

  return {
    perform: (before, action, after) => {
      switch (action.kind) {
        case 'worker':
          return performWorker(before, after, action.step, action.worker)
        case 'call':
          return performCall(before, after, action.step, action.worker, action.ord)
        case 'world':
          return performWorld(before, action.step)
        case 'item':
          return performItem(action.step, action.ord)
        case 'arrival':
          return Promise.resolve()
      }
    },
    read: () => readRows(database, operationId),
  }
}

/** What a state says of the rows; the same shape as `readRows`. */
export const rowsOf = (state: State) => {
  const { shard } = state
  const { applied, skipped, failed, uncertain } = countsOf(state)
  return {
    status: state.status,
    started: state.started,
    shard: { ...shard, inFlight: inFlight(state), waiting: waiting(state), applied, skipped, failed, uncertain },
    items: state.items.map(({ outcome, retry, cause }) => ({
      outcome,
      retry: retry && { ...retry, prior: outcome },
      cause,
    })),
    effects: state.effects.flatMap((effect) =>
      effect === null ? [] : [{ ...effect, resend: effect.state === 'intent' && effect.resend }],
    ),
  }
}

const readRows = async (database: Database, operationId: string): Promise<unknown> => {
  const [row] = await database.query(
    ({ sql }) => sql<{ rows: unknown }>`
      select jsonb_build_object('status', o.status, 'started', o.started_at is not null,
        'shard', jsonb_build_object('state', s.state, 'epoch', s.lease_epoch, 'cursor', s.cursor,
          'expired', s.state = 'leased' and s.lease_expires_at < now(), 'stop', s.stop_requested,
          'seen', s.stop_seen_at is not null, 'inFlight', s.in_flight, 'waiting', s.waiting, 'applied', s.applied,
          'skipped', s.skipped, 'failed', s.failed_transient, 'uncertain', s.uncertain),
        'items', (
          select jsonb_agg(jsonb_build_object('outcome', l.state, 'cause', case c.cause
              when 'send_outcome_unknown' then 'held' when 'worker_lost' then 'held' when 'in_doubt_elsewhere' then 'elsewhere'
              else c.cause end,
            'retry', case when r.ord is not null then
              jsonb_build_object('attempt', r.attempt, 'reason', r.reason, 'prior', r.prior_state) end) order by i.ord)
          from operation_items i
            left join item_retries r on r.operation_id = i.operation_id and r.ord = i.ord
            left join reconciliation_cases c on c.operation_id = i.operation_id and c.ord = i.ord and c.closed_at is null
            left join lateral (
              select state from ledger_entries l where l.operation_id = i.operation_id and l.ord = i.ord and l.state is not null
              order by seq desc limit 1) l on true
          where i.operation_id = o.id),
        'effects', (
          select coalesce(jsonb_agg(jsonb_build_object('state', e.state, 'send', e.send, 'ord', e.ord, 'attempt', e.attempt,
            'epoch', e.lease_epoch, 'resend', e.state = 'intent' and coalesce(e.was = 'uncertain', false),
            'stable', e.send_by < now() - interval '1 hour') order by e.effect_key), '[]')
          from effects e where e.operation_id = o.id)) as rows
      from operations o join operation_shards s on s.operation_id = o.id where o.id = ${operationId}::uuid`,
  )
  return row?.rows
}
