import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ResolveCaseRequest } from '../../src/services/requests.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { openProvider, UNKNOWN } from '../support/service-provider.ts'

const provider = openProvider()
const types = [provider.type('grant')]
let service: TestService
let engine: TestEngine
beforeAll(async () => {
  service = await openTestService({ types })
  engine = await startTestEngine({ url: service.url, types })
})
afterAll(async () => {
  provider.releaseAll()
  await engine.drain()
  await service.close()
})

/** An operation of one item that aims at this effect. */
const submit = async (target: string): Promise<string> => {
  const { id } = await service.submit('grant', [{ key: 'item', input: { target } }])
  return id
}
const item = async (id: string) => (await service.items(id)).get('item')
const resolve = async (id: string, resolution: ResolveCaseRequest['resolution'], retry = false): Promise<void> => {
  const [found] = await service.cases(id)
  await service.services.resolveCase(principal, found?.id ?? '', {
    resolution,
    evidenceRef: 'ticket 1',
    effectRef: null,
    note: null,
    retry,
  })
}

describe('two operations that aim at the same effect', () => {
  it('applied: the second is skipped, with the reference of the first', async () => {
    await untilStatus(service, await submit('same'), 'succeeded')
    const second = await submit('same')
    await untilStatus(service, second, 'succeeded')
    expect(await item(second)).toMatchObject({
      state: 'skipped',
      reasonCode: 'EFFECT_ALREADY_APPLIED',
      effectRef: 'ref:same',
      attempt: 1,
    })
    expect(provider.calls('same')).toBe(1)
    await expectConserved(service, second)
  })

  it('in flight: the second waits, uncharged, until the first has an outcome', async () => {
    provider.hold('flight')
    const first = await submit('flight')
    await eventually('the first calls', () => provider.calls('flight') === 1)
    const second = await submit('flight')
    const waits = () =>
      service.database.query(
        ({ sql }) => sql<{ attempt: number; postponed: boolean }>`
          select attempt, run_at > (select created_at from operations o where o.id = operation_id) + interval '1 second' as postponed
          from item_retries where operation_id = ${second}::uuid`,
      )
    // it looked again at least twice by then
    await eventually('the second was postponed', async () => (await waits())[0]?.postponed === true)
    expect(await waits()).toEqual([{ attempt: 1, postponed: true }])
    expect(await service.view(second)).toMatchObject({ status: 'running', counts: { unprocessed: 1 } })
    expect(await service.ledger(second)).toEqual([])
    await expectConserved(service, second)
    provider.release('flight')
    await untilStatus(service, first, 'succeeded')
    await untilStatus(service, second, 'succeeded')
    expect(await item(second)).toMatchObject({ state: 'skipped', attempt: 1 })
    expect(provider.calls('flight')).toBe(1)
    await expectConserved(service, second)
  })

  const inDoubt = async (target: string): Promise<[first: string, second: string]> => {
    provider.answer(target, UNKNOWN)
    const first = await submit(target)
    await untilStatus(service, first, 'reconciliation_required')
    const second = await submit(target)
    await untilStatus(service, second, 'reconciliation_required')
    expect(await service.cases(second)).toMatchObject([{ cause: 'in_doubt_elsewhere', status: 'open' }])
    expect(await item(second)).toMatchObject({ state: 'uncertain', reasonCode: 'IN_DOUBT_ELSEWHERE' })
    expect(provider.calls(target)).toBe(1)
    return [first, second]
  }

  it('uncertain, then applied: the second is in doubt too, and skipped when the first is resolved', async () => {
    const [first, second] = await inDoubt('doubt-yes')
    await resolve(first, 'applied')
    await untilStatus(service, first, 'succeeded')
    await untilStatus(service, second, 'succeeded')
    expect(await item(second)).toMatchObject({ state: 'skipped', reasonCode: 'EFFECT_ALREADY_APPLIED' })
    expect(await service.cases(second)).toMatchObject([{ resolution: { resolution: 'applied' } }])
    expect(provider.calls('doubt-yes')).toBe(1)
    await expectConserved(service, second)
  })

  it('uncertain, then absent: the second does it itself, once', async () => {
    const [first, second] = await inDoubt('doubt-no')
    await resolve(first, 'not_applied')
    await untilStatus(service, first, 'failed')
    await untilStatus(service, second, 'succeeded')
    expect(await item(second)).toMatchObject({ state: 'applied', effectRef: 'ref:doubt-no' })
    expect(await service.cases(second)).toMatchObject([{ resolution: { resolution: 'not_applied' } }])
    expect(provider.calls('doubt-no')).toBe(2)
    await expectConserved(service, first)
    await expectConserved(service, second)
  })

  it('the evidence may also be given at the case of the second', async () => {
    const [first, second] = await inDoubt('doubt-second')
    await resolve(second, 'applied')
    await untilStatus(service, first, 'succeeded')
    await untilStatus(service, second, 'succeeded')
    expect(await item(first)).toMatchObject({ state: 'applied', evidenceRef: 'ticket 1' })
    expect(await item(second)).toMatchObject({ state: 'skipped' })
  })

  it('the second cancelled while in doubt: it does nothing, whatever comes out', async () => {
    const [first, second] = await inDoubt('doubt-cancelled')
    await service.services.cancelOperation(principal, second, { reason: null, ifMatchVersion: null })
    await resolve(first, 'not_applied')
    await untilStatus(service, second, ['cancelled', 'completed_after_cancel'])
    expect(provider.calls('doubt-cancelled')).toBe(1)
    await expectConserved(service, second)
  })

  it('two items of one operation with one effect key: one call, the other is skipped', async () => {
    const { id } = await service.submit('grant', [
      { key: 'one', input: { target: 'twins' } },
      { key: 'two', input: { target: 'twins' } },
    ])
    const view = await untilStatus(service, id, 'succeeded')
    expect(view.counts).toMatchObject({ applied: 1, skipped: 1 })
    expect(provider.calls('twins')).toBe(1)
    await expectConserved(service, id)
  })
})
