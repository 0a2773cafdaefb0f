import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LookupOutcome, OperationType } from '../../src/domain/operation-type.ts'
import type { Principal } from '../../src/services/principal.ts'
import { recoverRemoteShards } from '../../src/services/recover-remote.ts'
import type { WorkBatchView } from '../../src/services/views.ts'
import { openWorker } from '../../src/services/worker-tokens.ts'
import { reserveCallsWithin } from '../../src/storage/rate-limits.ts'
import { applied, claimRequest, registerRemoteWorker, remoteType, runOut, said } from '../support/remote-work.ts'
import { expectConserved, openTestService, principal, type TestService } from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'

const types = {
  plain: remoteType('plain'),
  other: remoteType('other'),
  resending: remoteType('resending', {
    providerIdempotentMs: 3_600_000,
    executor: {
      kind: 'external',
      remote: true,
      callTimeoutMs: 500,
      send: () => Promise.reject(new Error('nobody here sends')),
      lookup: { afterMs: 0, timeoutMs: 500, find: async () => ({ state: 'unknown', reasonCode: 'PROCESSING' }) },
    },
  }),
  stepped: remoteType('stepped', { steps: ['reserve', 'ship'] }),
  rated: remoteType('rated', { ratePerSecond: 2, concurrency: 10 }),
  wide: remoteType('wide', { concurrency: 4 }),
  stalling: remoteType('stalling', { stallMs: 10_000 }),
} satisfies Record<string, OperationType>

let service: TestService
beforeAll(async () => {
  service = await openTestService({ types: Object.values(types) })
})
afterAll(() => service.close())

let keys = 0
const someItems = (count: number) => Array.from({ length: count }, () => ({ key: `k${++keys}` }))
const keysOf = (batch: Pick<WorkBatchView, 'items'> | null | undefined) => batch?.items.map(({ key }) => key)
const first = (batch: WorkBatchView) => {
  const [item] = batch.items
  if (!item) throw new Error('the batch is empty')
  return item
}
const statesOf = async (id: string) => [...(await service.items(id)).values()].map(({ state }) => state)

const shardOf = async (id: string) => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ state: string; claims: number; inFlight: number; seen: boolean }>`
      select state, claims, in_flight as "inFlight", stop_seen_at is not null as seen from operation_shards
      where operation_id = ${id}::uuid`,
  )
  return row
}

describe('work handed out', () => {
  test('runs an operation to its end: the first call registers, results bring the next items, the last ones finish', async () => {
    const items = someItems(3)
    const { id } = await service.submit('plain', items)
    const worker = await registerRemoteWorker(service, [types.plain])
    const askedMs = performance.now()
    const batch = await worker.take()
    expect(keysOf(batch)).toEqual([items[0]?.key, items[1]?.key])
    expect(batch).toMatchObject({ type: 'plain', operationId: id, isolated: false })
    // a lease without its margin and a call
    expect(batch.sendWithinMs).toBeLessThanOrEqual(performance.now() - askedMs + 30_000 - 2_000 - 500)
    expect(batch.leaseWithinMs).toBe(batch.sendWithinMs + 500)
    expect((await service.view(id)).status).toBe('running')
    const next = await worker.report(batch, batch.items.map(applied))
    expect(next).toMatchObject({ leaseState: 'held', recorded: 2, unknown: [], inHand: 1 })
    expect(keysOf(next.batch)).toEqual([items[2]?.key])
    const last = await worker.report(batch, (next.batch?.items ?? []).map(applied))
    expect(last).toMatchObject({ leaseState: 'finished', recorded: 1, batch: null, dueInMs: null })
    const view = await service.view(id)
    expect([view.status, view.counts.applied]).toEqual(['succeeded', 3])
    const [entry] = await service.ledger(id)
    expect(entry).toMatchObject({ source: 'worker', state: 'applied', codeVersion: 'c1' })
    await expectConserved(service, id)
    // the answer was lost, and the worker says it again
    expect(await worker.report(batch, (next.batch?.items ?? []).map(applied))).toMatchObject({
      leaseState: 'lost',
      recorded: 0,
    })
    expect(await service.cases(id)).toEqual([])
  })

  test('is claimed once, as often as workers ask at a time', async () => {
    const { id } = await service.submit('plain', someItems(2))
    const workers = await Promise.all(Array.from({ length: 6 }, () => registerRemoteWorker(service, [types.plain])))
    const batches = (await Promise.all(workers.map((worker) => worker.claim()))).filter((batch) => batch !== null)
    expect(batches).toHaveLength(1)
    expect(batches[0]?.operationId).toBe(id)
    await workers[0]?.report(batches[0] as WorkBatchView, (batches[0] as WorkBatchView).items.map(applied))
  })

  test('is not for the engine of a worker process', async () => {
    const { id } = await service.submit('plain', someItems(1))
    const engine = await startTestEngine({ url: service.url, types: [types.plain], maintenance: false })
    const worker = await registerRemoteWorker(service, [types.plain])
    const batch = await worker.take({ seconds: 30 })
    await worker.report(batch, batch.items.map(applied))
    await engine.drain()
    expect((await service.view(id)).status).toBe('succeeded')
    expect(engine.logged()).toEqual([])
  })

  test('waits for work without holding a connection, and is woken by it', async () => {
    const worker = await registerRemoteWorker(service, [types.other])
    const waiting = worker.take({ seconds: 60 })
    const { id } = await service.submit('other', someItems(1))
    const batch = await waiting
    expect(batch.operationId).toBe(id)
    await worker.report(batch, batch.items.map(applied))
    const gone = new AbortController()
    const given = worker.claim({ seconds: 60, signal: gone.signal })
    gone.abort()
    expect(await given).toBeNull()
  })

  test('is refused for types that there are not, and not given for other versions', async () => {
    await expect(service.services.claimWork(principal, claimRequest([remoteType('no-such')]))).rejects.toMatchObject({
      code: 'unknown-operation-type',
    })
    const { id } = await service.submit('other', someItems(1))
    const newer = { ...types.other, version: 2 }
    const worker = await registerRemoteWorker(service, [newer])
    const claimed = await service.services.claimWork(principal, claimRequest([newer], { worker: worker.token }))
    expect(claimed).toMatchObject({ batch: null, notRunnable: ['other@2'] })
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
  })

  test('counts its worker for the versions that it is given, also when the service is another one by now', async () => {
    const wide = { ...types.wide, version: 2 }
    const { token } = await registerRemoteWorker(service, [types.other, wide])
    const counted = async () => {
      const [row] = await service.database.query(
        ({ sql }) => sql<{ types: string[] }>`select types from workers order by started_at desc limit 1`,
      )
      return row?.types
    }
    expect(await counted()).toEqual(['other@1'])
    await service.services.claimWork(principal, claimRequest([types.wide], { worker: token }))
    expect(await counted()).toEqual(['wide@1'])
  })
})

describe('tenants', () => {
  const stranger: Principal = { ...principal, tenantId: 2, name: 'stranger' }

  test('meet neither work, nor leases, nor workers of each other', async () => {
    await service.database.query(
      ({ sql }) => sql`insert into tenants (id, name) values (2, 'two') on conflict do nothing`,
    )
    const { id } = await service.submit('plain', someItems(1))
    const foreign = await registerRemoteWorker(service, [types.plain], stranger)
    expect(await foreign.claim()).toBeNull()
    const mine = await registerRemoteWorker(service, [types.plain])
    const batch = await mine.take()
    await expect(foreign.report(batch, batch.items.map(applied))).rejects.toMatchObject({ code: 'lease-not-found' })
    await expect(
      service.services.giveBackWork(stranger, { lease: batch.lease, results: [], rest: 'unsent' }),
    ).rejects.toMatchObject({ code: 'lease-not-found' })
    const beat = { state: null, leases: [{ lease: batch.lease, stopSeen: null }] }
    await expect(service.services.beatWork(stranger, { worker: foreign.token, ...beat })).rejects.toMatchObject({
      code: 'lease-not-found',
    })
    await expect(service.services.beatWork(stranger, { worker: mine.token, ...beat })).rejects.toMatchObject({
      code: 'worker-not-found',
    })
    const seenBy = async (who: Principal) =>
      (await service.services.listWorkers(who)).filter(({ host }) => host === 'elsewhere').length
    expect(await seenBy(stranger)).toBe(1)
    expect(await seenBy(principal)).toBeGreaterThan(1)
    // a lease that ran out is not theirs either
    await runOut(service, id)
    expect(await foreign.claim()).toBeNull()
    await mine.report(batch, batch.items.map(applied))
    expect((await service.view(id)).status).toBe('succeeded')
  })
})

describe('a lease that was lost', () => {
  test('is explained by the next holder; what its worker saw is kept as late evidence, and hands nothing out', async () => {
    const { id } = await service.submit('plain', someItems(3))
    const dead = await registerRemoteWorker(service, [types.plain])
    const lost = await dead.take()
    await runOut(service, id)
    const next = await registerRemoteWorker(service, [types.plain])
    const batch = await next.take()
    // a crash without progress: one item at a time
    expect([batch.isolated, batch.items.length]).toEqual([true, 1])
    expect((await statesOf(id)).filter((state) => state === 'uncertain')).toHaveLength(2)
    const late = await dead.report(lost, lost.items.map(applied))
    expect(late).toMatchObject({ leaseState: 'lost', recorded: 2, batch: null })
    const sources = (await service.ledger(id)).map(({ source, state }) => `${source} ${state}`).sort()
    expect(sources).toEqual(['late_worker applied', 'late_worker applied', 'recovery uncertain', 'recovery uncertain'])
    expect((await service.cases(id)).map(({ status }) => status)).toEqual(['resolved', 'resolved'])
    await next.report(batch, batch.items.map(applied))
    expect((await service.view(id)).counts).toMatchObject({ applied: 3, uncertain: 0 })
    await expectConserved(service, id)
  })

  test('among suspects, one item is handed out after the other, until they are behind it', async () => {
    const { id } = await service.submit('wide', someItems(14))
    const dead = await registerRemoteWorker(service, [types.wide])
    await dead.take()
    await runOut(service, id)
    const worker = await registerRemoteWorker(service, [types.wide])
    const widths: number[] = []
    for (let batch: WorkBatchView | null = await worker.take(); batch; ) {
      widths.push(batch.items.length)
      batch = (await worker.report(batch, batch.items.map(applied))).batch
    }
    expect(widths).toEqual([1, 1, 1, 1, 4, 2])
    expect((await service.view(id)).status).toBe('reconciliation_required')
  })

  test('with no other worker there, maintenance explains it, runs nothing, and ends it after a cancel', async () => {
    const { id } = await service.submit('wide', someItems(6))
    const dead = await registerRemoteWorker(service, [types.wide])
    await dead.take()
    expect(await recoverRemoteShards(service.context, { workerId: crypto.randomUUID(), limit: 16 })).toBe(0)
    await runOut(service, id)
    expect(await recoverRemoteShards(service.context, { workerId: crypto.randomUUID(), limit: 16 })).toBe(1)
    expect((await service.view(id)).counts).toMatchObject({ uncertain: 4, unprocessed: 2 })
    // as the next worker would have found it: one death, and nothing for another sweep
    expect(await shardOf(id)).toMatchObject({ state: 'leased', claims: 1, inFlight: 0 })
    expect(await recoverRemoteShards(service.context, { workerId: crypto.randomUUID(), limit: 16 })).toBe(0)
    const next = await registerRemoteWorker(service, [types.wide])
    const batch = await next.take()
    expect([batch.isolated, batch.items.length]).toEqual([true, 1])
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    await runOut(service, id)
    expect(await recoverRemoteShards(service.context, { workerId: crypto.randomUUID(), limit: 16 })).toBe(1)
    expect(await shardOf(id)).toMatchObject({ state: 'done', inFlight: 0 })
    expect((await service.view(id)).status).toBe('reconciliation_required')
    await expectConserved(service, id)
  })
})

describe('what was not begun', () => {
  test('goes back uncharged when its worker says so, and is handed out again under a new send', async () => {
    const { id } = await service.submit('plain', someItems(1))
    const worker = await registerRemoteWorker(service, [types.plain])
    const batch = await worker.take()
    const back = await worker.report(batch, [said(first(batch), { state: 'unsent' })], { maxItems: 0 })
    expect(back).toMatchObject({ leaseState: 'finished', dueInMs: 0 })
    const again = await worker.take()
    expect(again.items).toMatchObject([{ send: 2, attempt: 1, resend: false }])
    await worker.report(again, again.items.map(applied))
    expect(await service.ledger(id)).toHaveLength(1)
  })

  test('with a lost answer: the items that it carried go back, those in hand and the others stay', async () => {
    const { id } = await service.submit('wide', someItems(8))
    const worker = await registerRemoteWorker(service, [types.wide])
    const batch = await worker.take()
    const [one, two, ...kept] = batch.items.map(applied)
    if (!one || !two) throw new Error('the batch is too small')
    const unread = await worker.report(batch, [one, two])
    expect(unread.batch?.items).toHaveLength(2)
    // without a word, nothing is taken for unsent
    const plain = await worker.report(batch, [one, two], { maxItems: 0 })
    expect(plain).toMatchObject({ recorded: 0, inHand: 4 })
    const lost = { maxItems: 0, lostAnswer: true, inHand: kept.map(({ effectKey, send }) => ({ effectKey, send })) }
    const told = await worker.report(batch, [one, two], lost)
    expect(told).toMatchObject({ leaseState: 'held', inHand: 2 })
    if (!told.lease) throw new Error('the lease is over')
    const fresh = await worker.report({ lease: told.lease }, [])
    expect(fresh.batch?.items).toHaveLength(2)
    // the same word under the old lease, late: it speaks of nothing that was handed out since, and takes nothing
    expect(await worker.report(batch, [one, two], { ...lost, maxItems: null })).toMatchObject({
      leaseState: 'lost',
      batch: null,
    })
    expect(await worker.report({ lease: told.lease }, [], { maxItems: 0 })).toMatchObject({
      leaseState: 'held',
      inHand: 4,
    })
    let answer = await worker.report({ lease: told.lease }, [...kept, ...(fresh.batch?.items ?? []).map(applied)])
    while (answer.batch) answer = await worker.report(answer.batch, answer.batch.items.map(applied))
    expect((await service.view(id)).counts).toMatchObject({ applied: 8, uncertain: 0 })
    await expectConserved(service, id)
  })

  test('with a lost claim: a lease that the worker does not know goes back, one that it knows does not', async () => {
    const { id } = await service.submit('plain', someItems(2))
    const worker = await registerRemoteWorker(service, [types.plain])
    const unread = await worker.take()
    const renamed = await service.services.claimWork(
      principal,
      claimRequest([types.plain], { worker: worker.token, lostAnswer: true, leases: [unread.lease] }),
    )
    expect(renamed.batch).toBeNull()
    expect(renamed.worker).not.toBe(worker.token)
    const again = await worker.take({ lostAnswer: true })
    expect(again.items).toMatchObject([{ send: 2 }, { send: 2 }])
    // the same word of the old name, late: what was handed out since is under the new one
    expect(await worker.claim({ lostAnswer: true })).toBeNull()
    const leases = [{ lease: again.lease, stopSeen: null }]
    const beat = await service.services.beatWork(principal, { worker: renamed.worker, state: null, leases })
    expect(beat).toMatchObject([{ leaseState: 'held' }])
    await worker.report(again, again.items.map(applied))
    expect((await service.view(id)).counts).toMatchObject({ applied: 2 })
  })

  test.each([
    ['uncertain', { uncertain: 1, applied: 1, unprocessed: 0 }],
    ['unsent', { uncertain: 0, applied: 1, unprocessed: 1 }],
  ] as const)('at a give-back, the rest is %s', async (rest, counts) => {
    const { id } = await service.submit('plain', someItems(2))
    const worker = await registerRemoteWorker(service, [types.plain])
    const { lease, items } = await worker.take()
    const results = items.slice(0, 1).map(applied)
    const given = await service.services.giveBackWork(principal, { lease, results, rest })
    expect(given).toMatchObject({ leaseState: 'finished', recorded: 1 })
    expect((await service.view(id)).counts).toMatchObject(counts)
    const reasons = (await service.ledger(id)).map(({ reasonCode }) => reasonCode)
    expect(reasons.includes('NOT_REPORTED')).toBe(rest === 'uncertain')
    await expectConserved(service, id)
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null }).catch(() => {})
  })

  test('because the client was gone when the claim had it: it goes back, and what came among suspects stays among them', async () => {
    const goneAfterClaim = (): AbortSignal => {
      let looks = 0
      return Object.defineProperty(new EventTarget(), 'aborted', { get: () => looks++ > 0 }) as AbortSignal
    }
    const { id } = await service.submit('wide', someItems(9))
    const worker = await registerRemoteWorker(service, [types.wide])
    expect(await worker.claim({ seconds: 30, signal: goneAfterClaim() })).toBeNull()
    expect(await shardOf(id)).toMatchObject({ state: 'ready', inFlight: 0 })
    expect((await worker.take()).items).toMatchObject(Array(4).fill({ send: 2, attempt: 1 }))
    await runOut(service, id)
    expect(await worker.claim({ seconds: 30, signal: goneAfterClaim() })).toBeNull()
    expect(await shardOf(id)).toMatchObject({ state: 'leased', inFlight: 0 })
    const batch = await worker.take()
    expect([batch.isolated, batch.items.length]).toEqual([true, 1])
    await service.services.giveBackWork(principal, { lease: batch.lease, results: [], rest: 'unsent' })
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    await expectConserved(service, id)
  })
})

describe('a stop', () => {
  const change = { reason: null, ifMatchVersion: null }

  test('is told by heartbeats and results; repeated, it is acknowledged; then nothing is handed out', async () => {
    const { id } = await service.submit('plain', someItems(4))
    const worker = await registerRemoteWorker(service, [types.plain])
    const batch = await worker.take()
    const beat = (stopSeen: 'cancel' | null) =>
      service.services.beatWork(principal, {
        worker: worker.token,
        state: null,
        leases: [{ lease: batch.lease, stopSeen }],
      })
    expect(await beat(null)).toMatchObject([{ leaseState: 'held', stop: null, giveBack: false }])
    await service.services.cancelOperation(principal, id, change)
    expect(await beat(null)).toMatchObject([{ leaseState: 'held', stop: 'cancel' }])
    expect((await service.view(id)).cancel.acknowledgedAt).toBeNull()
    const [one, two] = batch.items
    if (!one || !two) throw new Error('the batch is too small')
    expect(await worker.report(batch, [applied(one)])).toMatchObject({
      leaseState: 'held',
      stop: 'cancel',
      batch: null,
      inHand: 1,
    })
    await beat('cancel')
    expect((await service.view(id)).cancel.acknowledgedAt).not.toBeNull()
    expect(await worker.report(batch, [said(two, { state: 'unsent' })])).toMatchObject({ leaseState: 'finished' })
    const view = await service.view(id)
    expect([view.status, view.counts.applied, view.counts.unprocessed]).toEqual(['cancelled', 1, 3])
    expect(await beat(null)).toMatchObject([{ leaseState: 'lost', leaseWithinMs: 0 }])
  })

  test('that is a pause ends at the lease; the operation goes on where it was', async () => {
    const { id } = await service.submit('plain', someItems(3))
    const worker = await registerRemoteWorker(service, [types.plain])
    const batch = await worker.take()
    await service.services.pauseOperation(principal, id, change)
    expect(await worker.report(batch, batch.items.map(applied), { stopSeen: 'pause' })).toMatchObject({
      leaseState: 'finished',
    })
    expect((await service.view(id)).status).toBe('paused')
    expect(await worker.claim()).toBeNull()
    await service.services.resumeOperation(principal, id, change)
    const rest = await worker.take()
    await worker.report(rest, rest.items.map(applied))
    expect((await service.view(id)).status).toBe('succeeded')
  })

  test('of the type takes the shard back, and hands out nothing of it', async () => {
    const { id } = await service.submit('plain', someItems(4))
    const worker = await registerRemoteWorker(service, [types.plain])
    const batch = await worker.take()
    await service.services.pauseOperationType(principal, 'plain', { reason: null })
    const beat = { worker: worker.token, state: null, leases: [{ lease: batch.lease, stopSeen: null }] }
    expect(await service.services.beatWork(principal, beat)).toMatchObject([{ giveBack: true, stop: null }])
    expect(await worker.report(batch, batch.items.map(applied))).toMatchObject({ leaseState: 'finished', batch: null })
    expect(await worker.claim()).toBeNull()
    await service.services.resumeOperationType(principal, 'plain', { reason: null })
    const rest = await worker.take()
    await worker.report(rest, rest.items.map(applied))
    expect((await service.view(id)).status).toBe('succeeded')
  })
})

describe('results', () => {
  test('of every kind become what a worker process makes of them', async () => {
    const items = someItems(5)
    const { id } = await service.submit('rated', items)
    await service.database.query(({ sql }) => sql`delete from type_rates`)
    const worker = await registerRemoteWorker(service, [types.rated])
    const outcomes = [
      { state: 'skipped', effectRef: 'r', reasonCode: null },
      { state: 'failed', failureClass: 'conflict', reasonCode: 'TAKEN', message: 'no' },
      { state: 'uncertain', reasonCode: null, message: null },
      { state: 'failed', failureClass: 'validation_rejected', reasonCode: null, message: null },
      { state: 'applied', effectRef: null },
    ] as const
    const results = new Map(items.map(({ key }, index) => [key, outcomes[index]]))
    for (let batch = await worker.claim({ seconds: 20 }); batch; ) {
      const answer = await worker.report(
        batch,
        batch.items.map((item) => said(item, results.get(item.key) ?? { state: 'unsent' })),
      )
      batch = answer.batch ?? (answer.dueInMs === null ? null : await worker.claim({ seconds: 20 }))
    }
    const ledger = (await service.ledger(id)).map((entry) => [entry.state, entry.failureClass, entry.reasonCode])
    expect(ledger).toEqual([
      ['skipped', null, 'ALREADY_AT_TARGET'],
      ['failed', 'conflict', 'TAKEN'],
      ['uncertain', 'ambiguous_effect', 'OUTCOME_UNKNOWN'],
      ['failed', 'validation_rejected', null],
      ['applied', null, null],
    ])
    const [minutes] = await service.database.query(
      ({ sql }) => sql<{ calls: number; rejected: number }>`
        select sum(calls)::int as calls, sum(rejected)::int as rejected from type_minutes where type = 'rated'`,
    )
    expect(minutes).toEqual({ calls: 5, rejected: 1 })
  })

  test('that are transient are tried again until the attempts are used up', async () => {
    const { id } = await service.submit('plain', someItems(1))
    const worker = await registerRemoteWorker(service, [types.plain])
    const attempts: number[] = []
    const busy = { state: 'failed', failureClass: 'transient', reasonCode: 'BUSY', message: null } as const
    while ((await service.view(id)).status !== 'failed') {
      const batch = await worker.claim({ seconds: 20 })
      if (!batch) break
      attempts.push(first(batch).attempt)
      await worker.report(batch, [said(first(batch), busy)], { maxItems: 0 })
    }
    expect(attempts).toEqual([1, 2, 3])
    const filters = { operationId: id, type: null, failureClass: [], incidentId: null, status: [] }
    const dead = await service.services.listDeadLetters(principal, filters, { limit: 5, position: null })
    expect(dead.items).toHaveLength(1)
  })

  test('of effects that the lease has not are unknown, and change nothing', async () => {
    const { id } = await service.submit('plain', someItems(1))
    const { id: otherId } = await service.submit('other', someItems(1))
    const worker = await registerRemoteWorker(service, [types.plain])
    const other = await registerRemoteWorker(service, [types.other])
    const [batch, foreign] = [await worker.take(), await other.take()]
    const answer = await worker.report(batch, foreign.items.map(applied), { maxItems: 0 })
    expect(answer).toMatchObject({ recorded: 0, unknown: foreign.items.map(({ effectKey }) => effectKey), inHand: 1 })
    expect((await service.view(otherId)).counts.applied).toBe(0)
    await other.report(foreign, foreign.items.map(applied))
    // of a send that never was: an older one, says the registry, and nothing moves
    const odd = { ...applied(first(batch)), send: 9 }
    expect(await worker.report(batch, [odd], { maxItems: 0 })).toMatchObject({ recorded: 0, inHand: 1 })
    await worker.report(batch, batch.items.map(applied))
    expect((await service.view(id)).counts.applied).toBe(1)
  })

  test('for a send that another operation has repeated since are kept as a suspected duplicate', async () => {
    const items = someItems(1)
    const { id } = await service.submit('plain', items)
    const worker = await registerRemoteWorker(service, [types.plain])
    const batch = await worker.take()
    await service.services.giveBackWork(principal, { lease: batch.lease, results: [], rest: 'uncertain' })
    const [doubt] = await service.cases(id)
    const resolution = { resolution: 'not_applied' as const, evidenceRef: 'ticket 1', effectRef: null, note: null }
    await service.services.resolveCase(principal, doubt?.id ?? '', { ...resolution, retry: false })
    const { id: laterId } = await service.submit('plain', items)
    const later = await worker.take()
    expect(later.items).toMatchObject([{ send: 2 }])
    expect(await worker.report(batch, batch.items.map(applied))).toMatchObject({ recorded: 0, unknown: [] })
    const causes = (await service.cases(id)).map(({ cause, status }) => `${cause} ${status}`).sort()
    expect(causes).toEqual(['duplicate_suspected open', 'send_outcome_unknown resolved'])
    await worker.report(later, later.items.map(applied))
    expect((await service.view(laterId)).status).toBe('succeeded')
  })

  test('of a resend that are not "applied" leave it uncertain, also when they come late', async () => {
    const { id } = await service.submit('resending', someItems(1))
    const worker = await registerRemoteWorker(service, [types.resending])
    const batch = await worker.take()
    await worker.report(batch, [said(first(batch), { state: 'uncertain', reasonCode: 'T', message: null })])
    const [opened] = await service.cases(id)
    await service.services.lookupCase(principal, opened?.id ?? '')
    const resent = await worker.take({ seconds: 30 })
    expect(resent.items).toMatchObject([{ send: 2, resend: true }])
    await runOut(service, id)
    await recoverRemoteShards(service.context, { workerId: crypto.randomUUID(), limit: 16 })
    const refused = { state: 'failed', failureClass: 'conflict', reasonCode: 'DUPLICATE', message: null } as const
    await worker.report(resent, [said(first(resent), refused)])
    expect(await statesOf(id)).toEqual(['uncertain'])
    await worker.report(resent, resent.items.map(applied))
    expect(await statesOf(id)).toEqual(['applied'])
  })

  test('walk an item through its steps', async () => {
    const { id } = await service.submit('stepped', someItems(1))
    const worker = await registerRemoteWorker(service, [types.stepped])
    const batch = await worker.take()
    expect(batch.items).toMatchObject([{ step: 'reserve' }])
    const next = await worker.report(batch, batch.items.map(applied))
    expect(next.batch?.items).toMatchObject([{ step: 'ship', send: 1 }])
    // the first one is said again beside the second: two effects of one item
    await worker.report(batch, [...batch.items, ...(next.batch?.items ?? [])].map(applied))
    expect((await service.view(id)).status).toBe('succeeded')
  })
})

describe('limits', () => {
  test('of a rate are kept: half a second of it at a time, and none beside a long wait', async () => {
    const ask = (calls: number, maxWaitMs: number) =>
      service.database.query((connection) =>
        reserveCallsWithin(connection, 'some-type', { perSecond: 1, calls, maxWaitMs }),
      )
    expect(await ask(60, 0)).toEqual({ reserved: true, waitMs: 0 })
    const refused = await ask(60, 1_000)
    expect(refused.reserved).toBe(false)
    expect(refused.waitMs).toBeGreaterThan(30_000)
    // what was refused took nothing of the rate
    expect((await ask(1, 3_600_000)).waitMs).toBeLessThanOrEqual(refused.waitMs)
  })

  test('a worker that beats and does not report is not renewed, and its lease runs out', async () => {
    const { id } = await service.submit('stalling', someItems(1))
    const worker = await registerRemoteWorker(service, [types.stalling])
    const batch = await worker.take()
    const beat = () =>
      service.services.beatWork(principal, {
        worker: worker.token,
        state: 'active',
        leases: [{ lease: batch.lease, stopSeen: null }],
      })
    const shorten = () =>
      service.database.query(
        ({ sql }) => sql`
          update operation_shards set lease_expires_at = now() + interval '2 seconds' where operation_id = ${id}::uuid`,
      )
    await shorten()
    const [renewed] = await beat()
    expect(renewed?.leaseWithinMs).toBeGreaterThan(2_000)
    await service.database.query(
      ({ sql }) => sql`
        update effects set send_by = now() - interval '11 seconds' where operation_id = ${id}::uuid`,
    )
    await shorten()
    const [stalled] = await beat()
    expect(stalled).toMatchObject({ leaseState: 'held', giveBack: true })
    expect(stalled?.leaseWithinMs).toBeLessThan(2_000)
    expect(await worker.report(batch, [])).toMatchObject({ giveBack: true, batch: null })
    await worker.report(batch, batch.items.map(applied))
  })
})

test('a worker is listed with what it said of itself, and as gone when it said so', async () => {
  const worker = await registerRemoteWorker(service, [types.plain])
  const listed = async () => {
    const { rows } = await service.database.query(async ({ sql }) => ({
      rows: await sql<{ key: string }>`select key from signing_keys`,
    }))
    const { workerId } = openWorker(rows[0]?.key ?? '', 1, worker.token)
    return (await service.services.listWorkers(principal)).find(({ id }) => id === workerId)
  }
  expect(await listed()).toMatchObject({ host: 'elsewhere', pid: 4_711, codeVersion: 'w1', state: 'active', leases: 0 })
  await service.services.beatWork(principal, { worker: worker.token, state: 'gone', leases: [] })
  expect(await listed()).toMatchObject({ state: 'gone' })
})

test('after a restore, what may have been sent in the lost time is asked about before it is handed out', async () => {
  const answers: Record<string, LookupOutcome> = {
    found: { state: 'applied', evidenceRef: 'lookup 1' },
    absent: { state: 'absent', evidenceRef: 'lookup 2' },
    unsure: { state: 'unknown', reasonCode: 'PROCESSING' },
  }
  const doubted = remoteType('doubted', {
    concurrency: 10,
    executor: {
      kind: 'external',
      remote: true,
      callTimeoutMs: 500,
      send: () => Promise.reject(new Error('nobody here sends')),
      lookup: {
        afterMs: 0,
        timeoutMs: 500,
        find: async ({ effectKey }) => answers[effectKey] ?? { state: 'unknown', reasonCode: 'NO_ANSWER' },
      },
    },
  })
  const restored = await openTestService({ types: [doubted] })
  try {
    const { id } = await restored.submit(
      'doubted',
      Object.keys(answers).map((key) => ({ key })),
    )
    await restored.database.query(async ({ sql }) => {
      await sql`update operations set created_at = now() - interval '1 hour'`
      await sql`
        insert into restores (restored_at, lost_since, doubt_until)
        values (now() - interval '10 minutes', now() - interval '20 minutes', now())`
    })
    const worker = await registerRemoteWorker(restored, [doubted])
    const batch = await worker.take()
    expect(keysOf(batch)).toEqual(['absent'])
    await worker.report(batch, batch.items.map(applied))
    const reasons = (await restored.ledger(id)).map(({ itemKey, state, reasonCode }) => [itemKey, state, reasonCode])
    expect(reasons).toEqual([
      ['found', 'applied', 'FOUND_AFTER_RESTORE'],
      ['absent', 'applied', null],
      ['unsure', 'uncertain', 'DATABASE_RESTORED'],
    ])
    await expectConserved(restored, id)
  } finally {
    await restored.close()
  }
})
