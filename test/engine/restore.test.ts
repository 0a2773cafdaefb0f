/** After the database was taken back to an older point: what was sent in the lost time is not sent again. See storage/restores.ts. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { recordRestore } from '../../src/storage/restores.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimOne, tell } from '../support/races.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { BUSY, openProvider } from '../support/service-provider.ts'

const provider = openProvider()
const named = {
  effectKey: ({ key, rootOperationId }: { key: string; rootOperationId: string }) => ({
    key: `${rootOperationId}:${key}`,
  }),
}
const types = [
  provider.type('asked', { onAbsent: 'retry' }, { afterMs: 0 }),
  provider.type('asked-case', { onAbsent: 'case' }, { afterMs: 0 }),
  provider.type('unasked'),
  provider.type('slow', { retry: { maxAttempts: 3, baseMs: 4_000, maxMs: 4_000 } }, { afterMs: 0 }),
  provider.type('named', named),
]
const UNASKED = { name: 'unasked', version: 1, leaseMs: 2_000, windowMax: 8, compensates: false, codeVersion: 'c1' }
const FOUND = { state: 'applied', evidenceRef: 'GET 200' } as const
const ABSENT = { state: 'absent', evidenceRef: 'GET 404' } as const

let service: TestService
let engine: TestEngine | null = null
beforeAll(async () => {
  service = await openTestService({ types })
})
afterAll(async () => {
  await engine?.drain()
  await service.close()
})

/** As if it had been accepted an hour before the restore. */
const submitBefore = async (type: string, keys: readonly string[]): Promise<string> => {
  const { id } = await service.submit(
    type,
    keys.map((key) => ({ key })),
  )
  await service.database.query(
    ({ sql }) => sql`update operations set created_at = created_at - interval '1 hour' where id = ${id}::uuid`,
  )
  return id
}
/** As if the restore had been so long ago. */
const ageRestore = (seconds: number): Promise<unknown> =>
  service.database.query(
    ({ sql }) => sql`
      update restores set restored_at = restored_at - ${seconds} * interval '1 second',
        lost_since = lost_since - ${seconds} * interval '1 second'`,
  )
const reasons = async (id: string) =>
  (await service.ledger(id)).map(({ itemKey, state, reasonCode }) => [itemKey, state, reasonCode]).sort()

describe('a restore is recorded', () => {
  it('by nobody while a worker may still be there', async () => {
    await service.database.query(
      ({ sql }) => sql`
        insert into workers (id, host, pid, code_version, types, beat_ms)
        values (gen_random_uuid(), 'elsewhere', 7, 'c1', '[]', 60000)`,
    )
    expect(await recordRestore(service.database, { doubtDays: 30 })).toMatchObject({
      refused: 'worker-running',
      host: 'elsewhere',
      pid: 7,
    })
    expect(await service.database.query(({ sql }) => sql`select 1 from restores`)).toEqual([])
    await service.database.query(({ sql }) => sql`update workers set last_seen_at = now() - interval '1 hour'`)
  })

  it('and no lease of the lost time passes a fence any more, whatever epochs come', async () => {
    const id = await submitBefore('unasked', ['fenced-0', 'fenced-1'])
    const lease = await claimOne(service.database, UNASKED)
    if (lease.operationId !== id) throw new Error('another shard was claimed')
    expect(lease.doubt).toBeNull()
    // in the time that is lost it was claimed again and again
    const zombie = { ...lease, epoch: lease.epoch + 5 }
    expect(await recordRestore(service.database, { doubtDays: 30 })).toMatchObject({ operations: 1, shards: 1 })
    for (const epoch of [lease.epoch, zombie.epoch]) {
      const won = await service.database.query((connection) =>
        claimIntents(connection, { ...lease, epoch }, { from: 0, to: 1, sendByMs: 1_000 }),
      )
      expect(won).toBeNull()
    }
    await ageRestore(60)
  })
})

describe('after a restore', () => {
  beforeAll(async () => {
    provider.find('found', FOUND)
    provider.find('absent', ABSENT)
    provider.find('case-absent', ABSENT)
  })

  it('an effect of an older operation is looked up before it is sent: found, sent, or uncertain', async () => {
    const id = await submitBefore('asked', ['found', 'absent', 'unclear'])
    const byHand = await submitBefore('asked-case', ['case-absent'])
    const blind = await submitBefore('unasked', ['blind'])
    engine = await startTestEngine({ url: service.url, types })
    for (const each of [id, byHand, blind]) await untilStatus(service, each, 'reconciliation_required')
    expect(await reasons(id)).toEqual([
      ['absent', 'applied', null],
      ['found', 'applied', 'FOUND_AFTER_RESTORE'],
      ['unclear', 'uncertain', 'DATABASE_RESTORED'],
    ])
    expect(await reasons(byHand)).toEqual([['case-absent', 'uncertain', 'DATABASE_RESTORED']])
    expect(await reasons(blind)).toEqual([['blind', 'uncertain', 'DATABASE_RESTORED']])
    const calls = ['absent', 'found', 'unclear', 'case-absent', 'blind', 'fenced-0'].map((key) => provider.calls(key))
    expect(calls).toEqual([1, 0, 0, 0, 0, 0])
    for (const each of [id, byHand, blind]) await expectConserved(service, each)

    // what a person says is evidence: it is sent, and not doubted again
    const [found] = await service.cases(blind)
    await service.services.resolveCase(principal, found?.id ?? '', {
      resolution: 'not_applied',
      evidenceRef: 'asked them',
      effectRef: null,
      note: null,
      retry: true,
    })
    await untilStatus(service, blind, 'succeeded')
    expect(provider.calls('blind')).toBe(1)
    // so is what the provider says later
    provider.find('unclear', FOUND)
    await service.services.lookupCase(principal, (await service.cases(id))[0]?.id ?? '')
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('unclear')).toBe(0)
  })

  it('a retry follows an answer of later, without another question', async () => {
    provider.find('retried', ABSENT)
    provider.answer('retried', BUSY)
    const id = await submitBefore('asked', ['retried'])
    await eventually('it was called', () => provider.calls('retried') === 1)
    provider.find('retried', FOUND) // would be taken as found, if it were asked again
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('retried')).toBe(2)
    expect((await reasons(id)).map(([, state]) => state)).toEqual(['applied', 'failed'])
  })

  it('a younger operation is doubted where its key may be that of a lost one, until the doubt ends', async () => {
    const { id: shared } = await service.submit('unasked', [{ key: 'shared' }])
    const { id: own } = await service.submit('named', [{ key: 'own' }])
    await untilStatus(service, own, 'succeeded')
    await untilStatus(service, shared, 'reconciliation_required')
    expect(provider.calls('shared')).toBe(0)
    await service.database.query(({ sql }) => sql`update restores set doubt_until = now()`)
    const { id: later } = await service.submit('unasked', [{ key: 'later' }])
    await untilStatus(service, later, 'succeeded')
    await eventually('nothing is in flight', async () => (await service.view(later)).counts.inFlight === 0)
  })

  it('absence is not trusted while a send of the lost time may still arrive, and a retry of before is doubted', async () => {
    await service.database.query(({ sql }) => sql`delete from restores`)
    provider.answer('waiting', BUSY)
    const waiting = await submitBefore('slow', ['waiting'])
    await eventually('it waits', async () => (await service.view(waiting)).counts.failed === 1)
    await engine?.drain()
    engine = null
    provider.find('too-early', ABSENT)
    await service.database.query(({ sql }) => sql`update workers set last_seen_at = now() - interval '1 hour'`)
    const id = await submitBefore('asked', ['too-early'])
    await recordRestore(service.database, { doubtDays: 30 })
    // the shards are claimed as at the very instant of the restore
    await service.database.query(
      ({ sql }) => sql`
        update restores set restored_at = restored_at + interval '1 hour', doubt_until = doubt_until + interval '1 hour'`,
    )
    engine = await startTestEngine({ url: service.url, types, maintenance: false })
    for (const doubted of [id, waiting]) {
      await eventually('it is uncertain', async () => (await service.view(doubted)).counts.uncertain === 1)
    }
    expect(await reasons(id)).toEqual([['too-early', 'uncertain', 'DATABASE_RESTORED']])
    expect([provider.calls('too-early'), provider.calls('waiting')]).toEqual([0, 1])
    for (const doubted of [id, waiting]) await expectConserved(service, doubted)
  })

  it('what a worker saw that outlived the restore is kept, for effects that are not known here', async () => {
    await engine?.drain()
    engine = null
    const keys = ['seen-0', 'seen-1', 'unseen-0', 'unseen-1', 'unseen-2', 'unseen-3']
    const id = await submitBefore('slow', keys)
    for (const [ord, effect] of (['applied', 'uncertain'] as const).entries()) {
      const report = { ord, effectKey: keys[ord] ?? '', send: 2 }
      await tell(service.database, { tenantId: 1, operationId: id, shard: 0, epoch: 7 }, report, {
        effect,
        item: effect,
      })
    }
    for (const key of keys.slice(2)) provider.find(key, FOUND)
    engine = await startTestEngine({ url: service.url, types, concurrency: 1, maintenance: false })
    await untilStatus(service, id, 'reconciliation_required')
    expect(await reasons(id)).toEqual([
      ['seen-0', 'applied', null],
      ['seen-1', 'uncertain', null],
      ...keys.slice(2).map((key) => [key, 'applied', 'FOUND_AFTER_RESTORE']),
    ])
    expect((await service.cases(id)).map(({ itemKey }) => itemKey)).toEqual(['seen-1'])
    expect(keys.map((key) => provider.calls(key))).toEqual(keys.map(() => 0))
    await expectConserved(service, id)
  })
})
