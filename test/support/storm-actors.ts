/** Who takes part in a storm. Each actor does one small thing again and again until the round is over. */
import { setTimeout as sleep } from 'node:timers/promises'
import { AppError } from '../../src/domain/errors.ts'
import type { CallbackStatement, Json, OperationType, SendOutcome } from '../../src/domain/operation-type.ts'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { judgeCallback } from '../../src/services/judge-callback.ts'
import { sentReport, unsentReport } from '../../src/services/outcome-reports.ts'
import { receiveCallback } from '../../src/services/receive-callback.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { takePendingCallbacks } from '../../src/storage/callbacks.ts'
import type { Database } from '../../src/storage/database.ts'
import {
  closeExplainedDoubts,
  type DueLookup,
  queueResend,
  readExplainedDoubts,
  takeDueLookups,
} from '../../src/storage/lookups.ts'
import type { Report } from '../../src/storage/run/evidence.ts'
import { renewLeases } from '../../src/storage/run/heartbeat.ts'
import type { ClaimedShard, Lease, ShardKey } from '../../src/storage/run/lease.ts'
import { readUnsettled } from '../../src/storage/settle.ts'
import { requestCancel, requestPause, resume } from '../../src/storage/stops.ts'
import { plantedType, plantedTypes } from './planted-operation.ts'
import { NO_WAKE_UPS, TENANT } from './races.ts'
import type { Random } from './random.ts'
import { findViolations } from './storm-audit.ts'

const RETRY = { maxAttempts: 3, baseMs: 1, maxMs: 5 }
export const STEPPED = plantedType('stepped', { retry: RETRY, steps: ['a', 'b', 'c'] })
/** Its calls take no time here, so that what callbacks say of an absence counts within a round. */
export const EXTERNAL = plantedType('external', {
  retry: RETRY,
  executor: {
    kind: 'external',
    callTimeoutMs: 0,
    send: () => Promise.reject(new Error('a storm sends nothing')),
    lookup: null,
  },
  callback: { verify: () => true, read: (event: Json) => event as Json & CallbackStatement },
})
export const TRANSACTIONAL = plantedType('transactional', { retry: RETRY })

export interface Figures {
  rounds: number
  takeovers: number
  windows: number
  retries: number
  explained: number
  converged: number
  batches: number
  batchesRolledBack: number
  crashes: number
  lateReports: number
  cancels: number
  pauses: number
  resolved: number
  lookups: number
  resends: number
  doubtsClosed: number
  /** Over all operations with steps, as their ledgers tell it. */
  stepsApplied: number
  stepsFoundApplied: number
  stepsDueAfterDoubt: number
  stoppedBetweenSteps: number
  callbacks: number
  callbacksRepeated: number
  callbacksDeferred: number
  audits: number
}

/** A claimed send, and what it takes to report on it. */
export interface Sent {
  ord: number
  key: string
  effectKey: string
  send: number
  attempt: number
  resend: boolean
}

export interface Storm {
  database: Database
  figures: Figures
  operationIds: readonly string[]
  live: boolean
  held: Set<ClaimedShard>
  /** Answers that their worker did not live to write, or wrote too late. */
  late: { lease: Lease; report: Report }[]
}

const context = ({ database }: Storm) => ({
  database,
  wakeUps: NO_WAKE_UPS,
  types: plantedTypes(EXTERNAL, STEPPED, TRANSACTIONAL),
})
const OPERATOR = { tenantId: TENANT, name: 'operator', scopes: [] }

const randomOutcome = (random: Random): SendOutcome | 'unsent' => {
  const draw = random.below(20)
  if (draw === 0) return { state: 'uncertain', reasonCode: 'TIMEOUT' }
  if (draw < 4) return { state: 'failed', failureClass: 'transient', reasonCode: 'BUSY' }
  if (draw === 4) {
    const failureClass = random.pick(['validation_rejected', 'conflict', 'policy_denied', 'bug_suspected'] as const)
    return { state: 'failed', failureClass }
  }
  if (draw === 5) return 'unsent'
  if (draw === 6) return { state: 'skipped', reasonCode: 'ALREADY_SO' }
  return { state: 'applied', effectRef: 'ref' }
}

export const answer = (type: OperationType, sent: Sent, random: Random): Report => {
  const outcome = randomOutcome(random)
  return outcome === 'unsent' ? unsentReport(sent) : sentReport(type, sent, outcome)
}

export const bringHome = async (storm: Storm, lease: Lease, reports: Report[]): Promise<void> => {
  if (reports.length === 0) return
  await convergeEvidence(context(storm), lease, {
    source: 'worker',
    epoch: lease.epoch,
    workerId: lease.workerId,
    actor: null,
    codeVersion: 'c1',
    lookupAfterMs: 0,
    reports,
  })
  storm.figures.converged += reports.length
}

/** Renews every lease there is, as fast as it can. */
export const beat = async (storm: Storm): Promise<void> => {
  const leases = [...storm.held]
  for (const workerId of new Set(leases.map((lease) => lease.workerId))) {
    const mine = leases.filter((lease) => lease.workerId === workerId)
    await storm.database.query((connection) => renewLeases(connection, workerId, mine))
  }
  await sleep(6)
}

/** Lets random leases run out, also of workers that live. */
export const expireLeases = async ({ database }: Storm): Promise<void> => {
  await sleep(12)
  await database.query(
    ({ sql }) => sql`
      with x as materialized (
        select tenant_id, operation_id, shard from operation_shards where state = 'leased' and random() < 0.2
        for no key update skip locked)
      update operation_shards s set lease_expires_at = now() - interval '1 second' from x
      where s.tenant_id = x.tenant_id and s.operation_id = x.operation_id and s.shard = x.shard`,
  )
}

/** Time passes faster here: what waits is due. */
export const makeDue = async ({ database }: Storm): Promise<void> => {
  await sleep(10)
  await database.query(
    ({ sql }) => sql`
      with x as materialized (
        select tenant_id, operation_id, ord from item_retries where run_at > now() for no key update skip locked)
      update item_retries r set run_at = now() from x
      where r.tenant_id = x.tenant_id and r.operation_id = x.operation_id and r.ord = x.ord`,
  )
  await database.query(
    ({ sql }) => sql`
      with x as materialized (
        select tenant_id, operation_id, shard from operation_shards where state = 'ready' and run_at > now()
        for no key update skip locked)
      update operation_shards s set run_at = now() from x
      where s.tenant_id = x.tenant_id and s.operation_id = x.operation_id and s.shard = x.shard`,
  )
}

/** What a provider may say when it is asked. */
const lookUp = async (storm: Storm, due: DueLookup, random: Random): Promise<void> => {
  storm.figures.lookups++
  const draw = random.below(4)
  if (draw === 0) {
    if (await queueResend(storm.database, due)) storm.figures.resends++
    return
  }
  const retry = random.once(2) ? { afterMs: 0, reason: 'confirmed_absent' as const } : null
  const absent = {
    effect: 'absent',
    item: 'failed',
    failureClass: 'transient',
    reasonCode: 'CONFIRMED_ABSENT',
    retry,
  } as const
  await convergeEvidence(context(storm), due, {
    source: 'lookup',
    epoch: 0,
    workerId: null,
    actor: null,
    codeVersion: 'c1',
    lookupAfterMs: null,
    reports: [report(due, draw === 1 ? absent : { effect: 'applied', item: 'applied', evidenceRef: 'lookup' })],
  })
}

const closeDoubts = async (storm: Storm): Promise<number> => {
  const doubts = await storm.database.query((connection) => readExplainedDoubts(connection, 8))
  for (const doubt of doubts) {
    storm.figures.doubtsClosed += await closeExplainedDoubts(storm.database, doubt)
    await settle(storm, doubt)
  }
  return doubts.length
}

const resolveSome = async (storm: Storm, random: Random): Promise<number> => {
  const cases = await storm.database.query(
    ({ sql }) => sql<{ id: string }>`
      select id from reconciliation_cases where closed_at is null order by random() limit 3`,
  )
  for (const { id } of cases) {
    try {
      await resolveCase(context(storm), OPERATOR, id, {
        resolution: random.once(2) ? 'applied' : 'not_applied',
        evidenceRef: 'seen',
        effectRef: null,
        note: random.once(3) ? 'a note' : null,
        retry: random.once(2),
      })
      storm.figures.resolved++
    } catch (error) {
      if (
        !(
          error instanceof AppError &&
          ['case-already-resolved', 'case-changed', 'resend-in-progress'].includes(error.code)
        )
      )
        throw error
    }
  }
  return cases.length
}

/** Reconciler, operators and settle sweep. Answers with what it found to do. */
export const reconcile = async (storm: Storm, random: Random): Promise<number> => {
  const due = await storm.database.query((connection) =>
    takeDueLookups(connection, { types: [EXTERNAL.name, STEPPED.name], limit: 2, holdMs: 20, only: null }),
  )
  for (const lookup of due) await lookUp(storm, lookup, random)
  const found = due.length + (await closeDoubts(storm)) + (random.once(2) ? await resolveSome(storm, random) : 0)
  for (const operation of await storm.database.query((connection) => readUnsettled(connection, 10))) {
    await settle(storm, operation)
  }
  if (found === 0) await sleep(6)
  return found
}

const settle = async (storm: Storm, { tenantId, operationId }: Pick<ShardKey, 'tenantId' | 'operationId'>) => {
  await settleOperation(context(storm), tenantId, operationId)
}

/** Delivers what workers did not live to say, some time later. */
export const deliverLate = async (storm: Storm, random: Random): Promise<void> => {
  await sleep(random.below(12))
  const [late] = storm.late.splice(random.below(storm.late.length + 1), 1)
  if (!late) return
  await bringHome(storm, late.lease, [late.report])
  storm.figures.lateReports++
}

/** Events of a provider that knows nothing: each says the same whenever it is sent. */
const EVENTS = 24

const stormEvent = (number: number): { id: string; statement: CallbackStatement } => ({
  id: `e${number}`,
  statement: {
    effectKey: number % 4 === 0 ? `all:${number % 3}` : `${EXTERNAL.name}:${number % 10}`,
    state: number % 3 === 0 ? 'absent' : 'applied',
  },
})

/** Sends events, some of them often and at once, and judges those that wait. */
export const callBack = async (storm: Storm, random: Random): Promise<void> => {
  await sleep(random.below(20))
  const { id, statement } = stormEvent(random.below(EVENTS))
  const deliveries = await Promise.all(
    Array.from({ length: 1 + random.below(2) }, () =>
      receiveCallback(context(storm), {
        type: EXTERNAL.name,
        headers: { 'webhook-id': id },
        body: Buffer.from(JSON.stringify(statement)),
        tenantId: null,
      }),
    ),
  )
  for (const { duplicate, outcome } of deliveries) {
    storm.figures.callbacks++
    if (duplicate) storm.figures.callbacksRepeated++
    if (outcome === 'deferred') storm.figures.callbacksDeferred++
  }
  const pending = await storm.database.query((connection) =>
    takePendingCallbacks(connection, { types: [EXTERNAL.name], limit: 4, holdMs: 20 }),
  )
  for (const event of pending) await judgeCallback(context(storm), EXTERNAL, event)
}

export const cancelSome = async (storm: Storm, random: Random): Promise<void> => {
  for (const operationId of storm.operationIds) {
    await sleep(random.below(90))
    if (!random.once(3)) continue
    const stored = await requestCancel(storm.database, { tenantId: TENANT, operationId, actor: 'tester', reason: null })
    if (stored) storm.figures.cancels++
    await settle(storm, { tenantId: TENANT, operationId })
  }
}

/** A pause outlives a doubt: an operation may be paused again when its last doubt is closed, so every paused one is resumed. */
export const pauseAndResume = async (storm: Storm, random: Random): Promise<void> => {
  await sleep(20 + random.below(80))
  const request = (operationId: string) => ({ tenantId: TENANT, operationId, actor: 'tester', reason: null })
  const pause = request(random.pick(storm.operationIds))
  if (await requestPause(storm.database, pause)) {
    storm.figures.pauses++
    await settle(storm, pause)
  }
  await sleep(random.below(12))
  for (const operationId of storm.operationIds) {
    if (await resume(storm.database, request(operationId))) await settle(storm, request(operationId))
  }
}

export const audit = async (storm: Storm): Promise<void> => {
  await sleep(80)
  const violations = await findViolations(storm.database)
  if (violations.length > 0) throw new Error(violations.join('\n'))
  storm.figures.audits++
}
