import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  eventually,
  expectConserved,
  openTestService,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { CALL_TIMEOUT_MS, openProvider, UNKNOWN } from '../support/service-provider.ts'

const AFTER_MS = 300
const HOUR_MS = 3_600_000

const provider = openProvider()
const types = [
  provider.type('retry', { onAbsent: 'retry' }, { afterMs: AFTER_MS }),
  provider.type('case', { onAbsent: 'case' }, { afterMs: 0 }),
  provider.type('resend', { providerIdempotentMs: HOUR_MS }, { afterMs: 0 }),
  provider.type('resend-blind', { providerIdempotentMs: HOUR_MS }),
]
let service: TestService
let engine: TestEngine
beforeAll(async () => {
  service = await openTestService({ types })
  engine = await startTestEngine({ url: service.url, types })
})
afterAll(async () => {
  await engine.drain()
  await service.close()
})

/** Submits one item whose first call has no outcome, and waits until that is known. */
const uncertain = async (type: string, key: string): Promise<string> => {
  provider.answer(key, UNKNOWN)
  const { id } = await service.submit(type, [{ key }])
  await eventually('its case is open', async () => (await service.cases(id)).length === 1)
  return id
}
const onlyCase = async (id: string) => {
  const [found] = await service.cases(id)
  if (!found) throw new Error('there is no case')
  return found
}
const entries = async (id: string) =>
  (await service.ledger(id)).map((entry) => [entry.attempt, entry.state, entry.source, entry.reasonCode])

describe('a lookup of an uncertain effect', () => {
  it('that finds it closes the case with its evidence, without another call', async () => {
    provider.find('l-applied', { state: 'applied', effectRef: 'found', evidenceRef: 'GET 200' })
    const id = await uncertain('retry', 'l-applied')
    await untilStatus(service, id, 'succeeded')
    expect((await onlyCase(id)).resolution).toMatchObject({
      resolution: 'applied',
      source: 'lookup',
      evidenceRef: 'GET 200',
    })
    expect((await service.items(id)).get('l-applied')).toMatchObject({ state: 'applied', effectRef: 'found' })
    expect(provider.calls('l-applied')).toBe(1)
    await expectConserved(service, id)
  })

  it('that finds nothing counts only when the send cannot arrive any more; then it is tried again, and charged', async () => {
    provider.find('l-absent', { state: 'absent', evidenceRef: 'GET 404' })
    const id = await uncertain('retry', 'l-absent')
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('l-absent')).toBe(2)
    expect(await entries(id)).toEqual([
      [1, 'uncertain', 'worker', 'TIMEOUT'],
      [1, 'failed', 'lookup', 'CONFIRMED_ABSENT'],
      [2, 'applied', 'worker', null],
    ])
    const [waited] = await service.database.query(
      ({ sql }) => sql<{ ms: number }>`
        select (extract(epoch from max(observed_at) filter (where source = 'lookup') - min(observed_at)) * 1000)::float8 as ms
        from ledger_entries where operation_id = ${id}::uuid`,
    )
    expect(waited?.ms).toBeGreaterThanOrEqual(CALL_TIMEOUT_MS + AFTER_MS)
    await expectConserved(service, id)
  })

  it('that finds nothing each time ends in the dead letters when the attempts are used up', async () => {
    provider.find('l-never', { state: 'absent', evidenceRef: 'GET 404' })
    provider.answer('l-never', UNKNOWN, UNKNOWN, UNKNOWN)
    const { id } = await service.submit('retry', [{ key: 'l-never' }])
    await untilStatus(service, id, 'failed')
    expect(provider.calls('l-never')).toBe(3)
    const letters = await service.database.query(
      ({ sql }) => sql`select attempts, reason_code from dead_letters where operation_id = ${id}::uuid`,
    )
    expect(letters).toEqual([{ attempts: 3, reason_code: 'CONFIRMED_ABSENT' }])
    await expectConserved(service, id)
  })

  it('that finds nothing is left to a person where the type says so', async () => {
    provider.find('l-case', { state: 'absent', evidenceRef: 'GET 404' })
    const id = await uncertain('case', 'l-case')
    await eventually('it was looked up', async () => (await onlyCase(id)).lookups.lastAnswer === 'absent')
    const found = await onlyCase(id)
    expect(found).toMatchObject({ status: 'open', lookups: { nextAt: null } })
    expect(await service.view(id)).toMatchObject({ status: 'reconciliation_required', counts: { uncertain: 1 } })
    await service.services.resolveCase(principal, found.id, {
      resolution: 'not_applied',
      evidenceRef: 'asked them',
      effectRef: null,
      note: null,
      retry: true,
    })
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('l-case')).toBe(2)
    await expectConserved(service, id)
  })

  it.each([
    ['unknown', { state: 'unknown', reasonCode: 'PROCESSING' } as const, 'PROCESSING'],
    ['down', 'down' as const, 'LOOKUP_DOWN'],
  ])('that is %s leaves it where it is and is asked again later', async (name, answer, reasonCode) => {
    const key = `l-${name}`
    provider.find(key, answer)
    const id = await uncertain('retry', key)
    await eventually('it was looked up', async () => (await onlyCase(id)).lookups.lastAnswer === reasonCode)
    expect(await onlyCase(id)).toMatchObject({ status: 'open', lookups: { nextAt: expect.any(String) } })
    expect(await service.view(id)).toMatchObject({ status: 'reconciliation_required', counts: { uncertain: 1 } })
    provider.find(key, { state: 'applied', evidenceRef: 'GET 200' })
    await service.services.lookupCase(principal, (await onlyCase(id)).id)
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls(key)).toBe(1)
  })
})

describe('a provider that deduplicates by effect key', () => {
  it('is sent the same key again, and its answer "applied" is the evidence', async () => {
    const id = await uncertain('resend', 'r-applied')
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('r-applied')).toBe(2)
    expect(await entries(id)).toEqual([
      [1, 'uncertain', 'worker', 'TIMEOUT'],
      [2, 'applied', 'worker', null],
    ])
    expect((await onlyCase(id)).resolution).toMatchObject({ resolution: 'applied' })
    await expectConserved(service, id)
  })

  it('needs no lookup for that', async () => {
    const id = await uncertain('resend-blind', 'r-blind')
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('r-blind')).toBe(2)
  })

  it('case 41: any other answer to the repeat says nothing about the first: it stays uncertain', async () => {
    provider.answer('r-duplicate', UNKNOWN, { state: 'failed', failureClass: 'conflict', reasonCode: 'DUPLICATE' })
    const { id } = await service.submit('resend', [{ key: 'r-duplicate' }])
    await eventually('it was repeated', () => provider.calls('r-duplicate') === 2)
    await eventually('the answer is home', async () => (await service.view(id)).counts.inFlight === 0)
    await untilStatus(service, id, 'reconciliation_required')
    expect(await service.view(id)).toMatchObject({ counts: { uncertain: 1, failed: 0 } })
    expect(await onlyCase(id)).toMatchObject({ status: 'open' })
    await expectConserved(service, id)
  })

  it('is never sent a key again after a cancel', async () => {
    provider.hold('r-cancelled')
    const { id } = await service.submit('resend', [{ key: 'r-cancelled' }])
    await eventually('the call is in the air', () => provider.calls('r-cancelled') === 1)
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    provider.release('r-cancelled', UNKNOWN)
    await untilStatus(service, id, 'reconciliation_required')
    await eventually('it was looked up', async () => (await onlyCase(id)).lookups.lastAnswer === 'PROCESSING')
    await service.services.lookupCase(principal, (await onlyCase(id)).id)
    expect(provider.calls('r-cancelled')).toBe(1)
    expect((await service.items(id)).get('r-cancelled')).toMatchObject({ state: 'uncertain', retryAt: null })
    provider.find('r-cancelled', { state: 'applied', evidenceRef: 'GET 200' })
    await service.services.lookupCase(principal, (await onlyCase(id)).id)
    expect((await untilStatus(service, id, 'completed_after_cancel')).cancel.appliedAfterRequest).toBe(1)
  })
})
