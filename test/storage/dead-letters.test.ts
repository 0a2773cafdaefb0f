import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { OperationType, SendOutcome } from '../../src/domain/operation-type.ts'
import type { DeadLetterView, IncidentView } from '../../src/services/dead-letter-views.ts'
import type { DeadLetterFilters } from '../../src/services/requests.ts'
import type { HistoryView } from '../../src/services/views.ts'
import { plantedType } from '../support/planted-operation.ts'
import { holdDeadLetter, raceBehind } from '../support/races.ts'
import { expectConserved, openTestService, principal, type TestService, untilStatus } from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { BUSY, openProvider } from '../support/service-provider.ts'

/** Dead letters as the engine makes them, and what people do with them. */
const ATTEMPTS = 3
const provider = openProvider()
let service: TestService
let engine: TestEngine
/** What the transactional type answers; changed by the test. */
let batchOutcome: SendOutcome = BUSY

const ledgerOnly: OperationType = plantedType('import', {
  effect: 'transactional',
  leaseMs: 2_000,
  retry: { maxAttempts: ATTEMPTS, baseMs: 5, maxMs: 10 },
  executor: {
    kind: 'transactional',
    runBatch: async (_tx, items) =>
      batchOutcome.state === 'failed'
        ? items.map(({ key }) => ({ key, ...(batchOutcome as typeof BUSY & object) }))
        : [],
  } as OperationType['executor'],
})
const types = [provider.type('grant'), provider.type('mail'), ledgerOnly]

beforeAll(async () => {
  service = await openTestService({ types })
  engine = await startTestEngine({ url: service.url, types })
})
afterAll(async () => {
  await engine.drain()
  await service.close()
})

const busy = (message: string): SendOutcome => ({ ...BUSY, state: 'failed', failureClass: 'transient', message })

/** Runs an operation whose items all die; each is a target of its own, named by its key. */
const die = async (keys: string[], { type = 'grant', message = (_key: string): string => 'no room left' } = {}) => {
  for (const key of keys) provider.answer(key, ...Array<SendOutcome>(ATTEMPTS).fill(busy(message(key))))
  const { id } = await service.submit(
    type,
    keys.map((key) => ({ key })),
  )
  await untilStatus(service, id, 'failed')
  await expectConserved(service, id)
  return id
}

const anything: DeadLetterFilters = { operationId: null, type: null, failureClass: [], incidentId: null, status: [] }
const lettersOf = async (filters: Partial<DeadLetterFilters>): Promise<DeadLetterView[]> =>
  (await service.services.listDeadLetters(principal, { ...anything, ...filters }, { limit: 500, position: null })).items
/** Retries are jittered: which item dies first is chance. */
const lettersByKey = async (operationId: string): Promise<DeadLetterView[]> =>
  (await lettersOf({ operationId })).sort((a, b) => (a.itemKey < b.itemKey ? -1 : 1))
const letterOf = async (operationId: string): Promise<DeadLetterView> => {
  const [letter] = await lettersOf({ operationId })
  if (!letter) throw new Error('there is no dead letter')
  return letter
}
const incident = async (id: string): Promise<IncidentView> => {
  const found = await service.services.getIncident(principal, id)
  if (!found) throw new Error('there is no such incident')
  return found
}
const resolve = (id: string, reason = 'mended') =>
  service.services.resolveIncident(principal, id, { fixedIn: 'r42', reason })
const discard = (id: string, reason: string, name = 'tester') =>
  service.services.discardDeadLetter({ ...principal, name }, id, { reason })
const preflight = (
  id: string,
  scope: { states: string[]; itemKeys: string[] | null; failureClasses: string[] | null },
) => service.services.preflightReplay(principal, id, { scope })
const replay = async (id: string, preflightId: string, force: string[] = []) =>
  (await service.services.replayOperation(principal, id, { preflightId, reason: 'again', force, ifMatchVersion: null }))
    .operation.id

test('an item whose attempts are used up is a dead letter, with its cause', async () => {
  const id = await die(['plain'])
  expect(await letterOf(id)).toMatchObject({
    operationId: id,
    type: 'grant',
    itemKey: 'plain',
    effectKey: 'plain',
    failureClass: 'transient',
    reasonCode: 'BUSY',
    message: 'no room left',
    attempts: ATTEMPTS,
    status: 'open',
    closing: null,
  })
})

test("another tenant's dead letters and incidents do not exist", async () => {
  const letter = await letterOf(await die(['mine']))
  const stranger = { ...principal, tenantId: 2 }
  const { services } = service
  expect((await services.listDeadLetters(stranger, anything, { limit: 5, position: null })).items).toEqual([])
  expect(await services.getDeadLetter(stranger, letter.id)).toBeNull()
  expect(await services.getIncident(stranger, letter.incidentId)).toBeNull()
  await expect(services.discardDeadLetter(stranger, letter.id, { reason: 'no' })).rejects.toMatchObject({
    code: 'dead-letter-not-found',
  })
  await expect(
    services.resolveIncident(stranger, letter.incidentId, { fixedIn: null, reason: 'no' }),
  ).rejects.toMatchObject({ code: 'incident-not-found' })
  await expect(
    services.listItemHistory(stranger, letter.operationId, 'mine', { limit: 5, position: null }),
  ).rejects.toMatchObject({ code: 'operation-not-found' })
  expect(await letterOf(letter.operationId)).toMatchObject({ status: 'open' })
})

describe('discard', () => {
  test('of two at once one wins, and the other is told who and why', async () => {
    const { id } = await letterOf(await die(['race']))
    const held = await holdDeadLetter(service.url, id)
    const [first, second] = await raceBehind(
      service.database,
      held,
      () => discard(id, 'the user has left', 'ann').catch((error: unknown) => error),
      () => discard(id, 'a duplicate', 'ben').catch((error: unknown) => error),
    )
    expect(first).toMatchObject({ status: 'discarded', closing: { by: 'ann', reason: 'the user has left' } })
    expect(second).toMatchObject({
      code: 'dead-letter-already-closed',
      extra: { outcome: 'discarded', closed_by: 'ann', close_reason: 'the user has left' },
    })
  })

  test('nothing open is left to discard once the effect is applied by another operation', async () => {
    const letter = await letterOf(await die(['elsewhere']))
    const { id } = await service.submit('grant', [{ key: 'other', input: { target: 'elsewhere' } }])
    await untilStatus(service, id, 'succeeded')
    await expect(discard(letter.id, 'too late')).rejects.toMatchObject({
      code: 'dead-letter-already-closed',
      extra: { outcome: 'recovered', closed_by: null },
    })
    expect(await lettersOf({ operationId: letter.operationId, status: ['open'] })).toEqual([])
    expect(await lettersOf({ operationId: letter.operationId, status: ['recovered'] })).toHaveLength(1)
  })

  test('who discarded it stays known when its effect is applied later', async () => {
    const letter = await letterOf(await die(['changed-mind']))
    await discard(letter.id, 'nobody needs it')
    const { id } = await service.submit('grant', [{ key: 'changed-mind' }])
    await untilStatus(service, id, 'succeeded')
    expect(await letterOf(letter.operationId)).toMatchObject({
      status: 'recovered',
      closing: { by: 'tester', reason: 'nobody needs it' },
    })
  })
})

describe('incidents', () => {
  test('many failures of one cause are one; ids and numbers in the message do not split it, the type does', async () => {
    const keys = ['g-1', 'g-2', 'g-3', 'g-4']
    const message = (key: string) => `request ${crypto.randomUUID()} of "${key}" failed after ${key.at(-1)}0.5 s`
    const first = await die(keys.slice(0, 2), { message })
    const second = await die(keys.slice(2), { message })
    const other = await die(['m-1'], { message, type: 'mail' })
    const ids = new Set(
      [...(await lettersOf({ operationId: first })), ...(await lettersOf({ operationId: second }))].map(
        (l) => l.incidentId,
      ),
    )
    expect(ids.size).toBe(1)
    const [id = ''] = ids
    expect(await incident(id)).toMatchObject({
      id,
      type: 'grant',
      count: 4,
      openCount: 4,
      operations: 2,
      status: 'open',
      resolution: null,
      sample: { reasonCode: 'BUSY', operationId: second },
    })
    expect((await letterOf(other)).incidentId).not.toBe(id)
  })

  test('a resolution closes what is open with who and why; a new dead letter opens the incident again', async () => {
    const message = () => 'the directory rejects our certificate'
    const operation = await die(['c-1', 'c-2'], { message })
    const [letter] = await lettersByKey(operation)
    const id = letter?.incidentId ?? ''
    await discard(letter?.id ?? '', 'left the company')
    const resolved = await resolve(id, 'a new certificate')
    expect(resolved).toMatchObject({
      status: 'resolved',
      count: 2,
      openCount: 0,
      resolution: { resolvedBy: 'tester', fixedIn: 'r42', reason: 'a new certificate' },
      // what was discarded is not proposed
      preflights: [{ operationId: operation, targets: 1, scope: { states: ['failed'], itemKeys: ['c-2'] } }],
      hasMorePreflights: false,
    })
    expect(await lettersByKey(operation)).toMatchObject([
      { itemKey: 'c-1', status: 'discarded', closing: { reason: 'left the company' } },
      { itemKey: 'c-2', status: 'resolved', closing: { by: 'tester', reason: 'a new certificate' } },
    ])
    await die(['c-3'], { message })
    expect(await incident(id)).toMatchObject({ status: 'open', count: 3, openCount: 1, resolution: { fixedIn: 'r42' } })
    const history = await service.database.query(
      ({ sql }) => sql`select 1 from incident_resolutions where fingerprint = ${id}`,
    )
    await resolve(id, 'another new certificate')
    expect(
      await service.database.query(({ sql }) => sql`select 1 from incident_resolutions where fingerprint = ${id}`),
    ).toHaveLength(history.length + 1)
  })

  test('a dead letter that is committed behind a resolution stays open, although it is older', async () => {
    const operation = await die(['late'], { message: () => 'written while somebody resolved' })
    const { id, incidentId } = await letterOf(operation)
    await service.database.transaction(async ({ sql }) => {
      await sql`
        insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
        select tenant_id, gen_random_uuid(), 0, type, 'later', 'later', failure_class, attempts, fingerprint
        from dead_letters where id = ${id}::uuid`
      expect(await resolve(incidentId)).toMatchObject({ status: 'resolved', count: 1 })
    })
    expect(await incident(incidentId)).toMatchObject({ status: 'open', count: 2, openCount: 1 })
  })

  test('a proposal works as the scope of a preflight; what came home is not proposed again', async () => {
    const message = () => 'quota of the tenant is used up'
    const operation = await die(['q-1', 'q-2'], { message })
    const { incidentId } = await letterOf(operation)
    const [proposal] = (await resolve(incidentId)).preflights
    if (!proposal) throw new Error('nothing was proposed')
    const asked = await preflight(proposal.operationId, proposal.scope)
    expect(asked).toMatchObject({ allowed: true, replayTargets: 2 })
    provider.answer('q-2', ...Array<SendOutcome>(ATTEMPTS).fill(busy(message())))
    const replayed = await replay(operation, asked.id)
    await untilStatus(service, replayed, 'partially_succeeded')
    expect(await lettersByKey(operation)).toMatchObject([
      { itemKey: 'q-1', status: 'recovered', closing: { reason: 'mended' } },
      { itemKey: 'q-2', status: 'resolved' },
    ])
    // q-2 died last in the replay: only from there it is proposed
    expect((await resolve(incidentId)).preflights).toMatchObject([
      { operationId: replayed, targets: 1, scope: { itemKeys: ['q-2'] } },
    ])
  })

  test('more items than a proposal names are spoken of by their classes', async () => {
    const keys = Array.from({ length: 501 }, (_, i) => `many-${i}`)
    const operation = await die(keys, { message: () => 'all of them at once' })
    const { incidentId } = await letterOf(operation)
    const { preflights } = await resolve(incidentId)
    expect(preflights).toEqual([
      {
        operationId: operation,
        targets: 501,
        scope: { states: ['failed'], itemKeys: null, failureClasses: ['transient'] },
      },
    ])
    expect((await preflight(operation, preflights[0]?.scope ?? expect.fail())).replayTargets).toBe(501)
  })

  test('a list by pages, oldest first, and by status', async () => {
    const seen: IncidentView[] = []
    let position = null as { firstSeenAt: string; id: string } | null
    do {
      const page: { items: IncidentView[]; next: typeof position } = await service.services.listIncidents(
        principal,
        { type: null, status: [] },
        { limit: 2, position },
      )
      seen.push(...page.items)
      position = page.next
    } while (position)
    expect(new Set(seen.map(({ id }) => id)).size).toBe(seen.length)
    expect(seen.map(({ firstSeenAt }) => firstSeenAt)).toEqual(seen.map(({ firstSeenAt }) => firstSeenAt).sort())
    const byStatus = async (status: string) =>
      (
        await service.services.listIncidents(
          principal,
          { type: null, status: [status] },
          { limit: 500, position: null },
        )
      ).items
    expect([...(await byStatus('open')), ...(await byStatus('resolved'))].map(({ id }) => id).sort()).toEqual(
      seen.map(({ id }) => id).sort(),
    )
  })
})

describe('the third run that ends with the same fingerprint', () => {
  const expectSuspect = async (id: string, key: string): Promise<void> => {
    expect((await service.view(id)).failures).toEqual({ bug_suspected: 1 })
    expect((await service.items(id)).get(key)).toMatchObject({ state: 'failed', failureClass: 'bug_suspected' })
    expect((await service.ledger(id)).at(-1)).toMatchObject({ attempt: ATTEMPTS, failureClass: 'bug_suspected' })
    expect(await letterOf(id)).toMatchObject({ failureClass: 'bug_suspected' })
    await expectConserved(service, id)
    const [effect] = await service.database.query(
      ({ sql }) => sql<{ item_class: string }>`select item_class from effects where operation_id = ${id}::uuid`,
    )
    expect(effect?.item_class).toBe('bug_suspected')
  }

  test('suspects a bug: a replay is refused until somebody forces it or the version changes', async () => {
    const message = () => 'the same again'
    const first = await die(['strike'], { message })
    const second = await die(['strike'], { message })
    // another cause in between counts for itself
    await die(['strike'], { message: () => 'something else' })
    for (const id of [first, second]) expect((await service.view(id)).failures).toEqual({ transient: 1 })
    const third = await die(['strike'], { message })
    await expectSuspect(third, 'strike')
    expect((await letterOf(third)).incidentId).toBe((await letterOf(first)).incidentId)

    const scope = { states: ['failed'], itemKeys: ['strike'], failureClasses: null }
    const asked = await preflight(third, scope)
    expect(asked).toMatchObject({ allowed: false, blockedBy: ['bug-suspected'] })
    await expect(replay(third, asked.id)).rejects.toMatchObject({ code: 'replay-blocked' })
    const forced = await replay(third, asked.id, ['bug-suspected'])
    await untilStatus(service, forced, 'succeeded')
    expect(await letterOf(third)).toMatchObject({ status: 'recovered' })
  })

  test('also through replays, and for a transactional type', async () => {
    batchOutcome = BUSY
    const { id: first } = await service.submit('import', [{ key: 't-strike' }])
    await untilStatus(service, first, 'failed')
    const again = async (id: string): Promise<string> => {
      const asked = await preflight(id, { states: ['failed'], itemKeys: null, failureClasses: null })
      const replayed = await replay(id, asked.id)
      await untilStatus(service, replayed, 'failed')
      return replayed
    }
    const second = await again(first)
    expect((await service.view(second)).failures).toEqual({ transient: 1 })
    await expectSuspect(await again(second), 't-strike')
  })

  test('two items of one operation with one effect key are one run', async () => {
    provider.answer('shared', ...Array<SendOutcome>(4 * ATTEMPTS).fill(busy('for both')))
    const { id } = await service.submit(
      'grant',
      ['s-1', 's-2', 's-3', 's-4'].map((key) => ({ key, input: { target: 'shared' } })),
    )
    await untilStatus(service, id, 'failed')
    expect((await service.view(id)).failures).toEqual({ transient: 4 })
    provider.answer('shared')
  })
})

describe('the history of an item', () => {
  const historyOf = async (id: string, key: string, limit = 500): Promise<HistoryView[]> => {
    const events: HistoryView[] = []
    let position: Parameters<TestService['services']['listItemHistory']>[3]['position'] = null
    do {
      const page = await service.services.listItemHistory(principal, id, key, { limit, position })
      events.push(...page.items)
      position = page.next
    } while (position)
    return events
  }

  test('runs from the first attempt to the last replay, with who and why, from any operation of the chain', async () => {
    const root = await die(['h-1', 'h-2'], { message: () => 'a history' })
    const { incidentId } = await letterOf(root)
    const [proposal] = (await resolve(incidentId, 'restarted it')).preflights
    const asked = await preflight(root, proposal?.scope ?? expect.fail())
    provider.answer('h-1', ...Array<SendOutcome>(ATTEMPTS).fill(busy('a history')))
    const second = await replay(root, asked.id)
    await untilStatus(service, second, 'partially_succeeded')
    const letter = await letterOf(second)
    await discard(letter.id, 'given up', 'ann')
    const askedAgain = await preflight(second, { states: ['failed'], itemKeys: null, failureClasses: null })
    const third = await replay(second, askedAgain.id)
    await untilStatus(service, third, 'succeeded')

    const events = await historyOf(second, 'h-1')
    const busyEntry = (operationId: string) => ['ledger_entry', operationId, 'failed']
    expect(events.map(({ kind, operationId, entry }) => [kind, operationId, entry?.state ?? null])).toEqual([
      ['accepted', root, null],
      busyEntry(root),
      busyEntry(root),
      busyEntry(root),
      ['dead_letter', root, null],
      ['dead_letter_resolved', root, null],
      ['accepted', second, null],
      busyEntry(second),
      busyEntry(second),
      busyEntry(second),
      ['dead_letter', second, null],
      ['dead_letter_discarded', second, null],
      ['accepted', third, null],
      ['ledger_entry', third, 'applied'],
    ])
    expect(events[0]).toMatchObject({ actor: 'tester', replayOf: null })
    expect(events[5]).toMatchObject({ actor: 'tester', reason: 'restarted it', incidentId })
    expect(events[6]).toMatchObject({ actor: 'tester', reason: 'again', replayOf: root })
    expect(events[11]).toMatchObject({ actor: 'ann', reason: 'given up', deadLetterId: letter.id })
    expect(events[3]?.entry).toMatchObject({ attempt: ATTEMPTS, message: 'a history', effectKey: 'h-1' })
    expect(await historyOf(root, 'h-1', 1)).toEqual(events)
    expect(await historyOf(third, 'h-1', 3)).toEqual(events)

    // the last replay never had this one
    await expect(historyOf(third, 'h-2')).rejects.toMatchObject({ code: 'item-not-found' })
    expect((await historyOf(second, 'h-2')).at(-1)).toMatchObject({ operationId: second, entry: { state: 'applied' } })

    // retention takes the items first; the ledger still knows them
    await service.database.query(
      ({ sql }) => sql`update operations set items_purged_at = now() where id = ${root}::uuid`,
    )
    await service.database.query(({ sql }) => sql`delete from operation_items where operation_id = ${root}::uuid`)
    expect(await historyOf(root, 'h-1')).toEqual(events)
  })

  test('an unprocessed item has its acceptance; an unknown operation has nothing', async () => {
    const { id } = await service.submit('grant', [{ key: 'later' }], { runAfter: '2100-01-01T00:00:00Z' })
    expect(await historyOf(id, 'later')).toMatchObject([{ kind: 'accepted', entry: null }])
    await expect(historyOf(crypto.randomUUID(), 'later')).rejects.toMatchObject({ code: 'operation-not-found' })
  })
})
