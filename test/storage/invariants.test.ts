/**
 * The checker must be able to fail. A run that went well, with everything in it that the invariants speak of, is left alone
 * by them; then each invariant is broken once by hand, in a transaction that is rolled back, and has to be found.
 */
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Json } from '../../src/domain/operation-type.ts'
import { toOperation } from '../../src/http/resources/operation.ts'
import type { OperationView } from '../../src/services/views.ts'
import type { EffectLog, Judge } from '../invariants/effect-log.ts'
import { wrongEvidence } from '../invariants/effects-account.ts'
import { waitUntilSettled } from '../invariants/end-account.ts'
import { type CallFacts, createHistory, type History, operationIds } from '../invariants/history.ts'
import { checkInvariants, type Run } from '../invariants/invariants.ts'
import { checkLinearizable } from '../invariants/linearizable.ts'
import { uuidOf } from '../invariants/states-account.ts'
import type { Invariant, Violation } from '../invariants/violation.ts'
import { createWatcher } from '../invariants/watcher.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { eventually, openTestService, principal, type TestService, untilStatus } from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'

/** Patient: on a busy machine too only those sends are in doubt that are meant to be. */
const patient = (name: string, change = {}, http: { [member: string]: Json } = {}) => {
  const { http: plain, ...rest } = grantType(name, { lease_seconds: 60, stall_ms: 120_000, ...change })
  const { request, outcome } = plain as { request: { [member: string]: Json }; outcome: Json }
  return { ...rest, http: { request: { ...request, timeout_ms: 40_000 }, outcome, ...http } }
}
const { http: plain } = patient('plain')
const file = writeTypeFile([
  patient('plain', { parallelism: 3 }),
  patient('looked-up', {}, { lookup: grantLookup(100), on_absent: 'retry' }),
  {
    ...patient('stepped'),
    http: { steps: ['one', 'two'].map((name) => ({ name, request: plain.request, outcome: plain.outcome })) },
  },
])

let effects: EffectServer
let service: TestService
let engine: TestEngine
let sql: postgres.Sql
let history: History
const judge: Judge = { types: ['plain', 'looked-up', 'stepped'], read: () => effects.entries() }

const tell = (kind: Parameters<History['record']>[0], facts: CallFacts, ask: () => Promise<OperationView>) =>
  history.record(kind, facts, async () => ({ status: 202, body: toOperation(await ask(), principal) }))

const submit = async (type: string, prefix: string, modes: readonly string[], delay_ms = 0): Promise<OperationView> => {
  const items = modes.map((mode, index) => ({ key: `${prefix}${index}`, input: { mode, delay_ms } }))
  const change = { idempotencyKey: prefix, body: { type, items } }
  const { body } = await tell('submit', { key: prefix, body: prefix, items: items.length }, () =>
    service.submit(type, items, change),
  )
  return service.view(uuidOf(body.id))
}

const poll = (id: string): Promise<unknown> => tell('get', {}, () => service.view(id))

const resolve = async (operationId: string, resolution: 'applied' | 'not_applied'): Promise<void> => {
  for (const { id } of await service.cases(operationId)) {
    const evidence = { resolution, evidenceRef: 'log', effectRef: null, note: null, retry: false }
    await service.services.resolveCase(principal, id, evidence)
  }
}

let plainId: string
let cancelledId: string
let steppedId: string

beforeAll(async () => {
  effects = await startEffectServer()
  service = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
  engine = await startTestEngine({ url: service.url, types: service.context.types.list() })
  sql = postgres(service.url, { max: 1, onnotice: () => {} })
  history = createHistory()
  const one = await submit('plain', 'a', ['ok', 'busy_once', 'reject', 'already', 'apply_then_reset', 'conflict', 'ok'])
  plainId = one.id
  const two = await submit('looked-up', 'b', ['ok', 'apply_then_reset', 'reset_once', 'ok'])
  const three = await submit('stepped', 'c', ['ok', 'ok', 'reject'])
  steppedId = three.id
  const four = await submit('plain', 'd', Array(40).fill('ok'), 100)
  cancelledId = four.id
  await eventually('some are sent', async () => {
    await poll(four.id)
    return (await service.view(four.id)).counts.applied > 4
  })
  await tell('cancel', { operationId: `op_${four.id.replaceAll('-', '')}` }, async () => {
    await service.services.cancelOperation(principal, four.id, { reason: null, ifMatchVersion: null })
    return service.view(four.id)
  })
  await untilStatus(service, one.id, 'reconciliation_required')
  await resolve(one.id, 'applied')
  await waitUntilSettled(sql, operationIds(history), { withinMs: 60_000 })
  for (const id of [one.id, two.id, three.id, four.id]) await poll(id)
})
afterAll(async () => {
  await engine.drain()
  await sql.end()
  await service.close()
  await effects.close()
  file.remove()
})

const check = (change: Partial<Run> = {}): Promise<Violation[]> =>
  checkInvariants({ history, sql, judges: [judge], phase: 'end', ...change })

const ROLLED_BACK = new Error('the plant is taken back')

/** What is found while `plant` stands. */
const findPlanted = async (
  plant: (tx: postgres.TransactionSql) => Promise<unknown>,
  change: Partial<Run> = {},
): Promise<Violation[]> => {
  let found: Violation[] = []
  const planted = sql.begin(async (tx) => {
    await plant(tx)
    found = await check({ sql: tx as unknown as postgres.Sql, ...change })
    throw ROLLED_BACK
  })
  await expect(planted).rejects.toBe(ROLLED_BACK)
  return found
}

const invariantsOf = (found: readonly Violation[]): Invariant[] =>
  [...new Set(found.map((each) => each.invariant))].sort()

it('finds nothing in a run that went well', async () => {
  expect(await check()).toEqual([])
  expect(await check({ phase: 'during' })).toEqual([])
  expect(operationIds(history)).toHaveLength(4)
})

interface Plant {
  name: string
  breaks: Invariant
  plant: (tx: postgres.TransactionSql) => Promise<unknown>
  says: RegExp
}

const purging = (tx: postgres.TransactionSql) => tx`set local opledger.retention = 'on'`

const PLANTS: Plant[] = [
  {
    name: 'an accepted operation is gone',
    breaks: 'I1',
    plant: (tx) => tx`delete from operations where id = ${plainId}`,
    says: /a submit was answered 202, and it does not exist/,
  },
  {
    name: 'an accepted operation has another key',
    breaks: 'I1',
    plant: (tx) => tx`update operations set idempotency_key = 'other' where id = ${plainId}`,
    says: /was accepted under the key a, and has other/,
  },
  {
    name: 'two counters are wrong, and their sum is right',
    breaks: 'I2',
    plant: (tx) => tx`update operation_shards set applied = applied - 1, skipped = skipped + 1
      where operation_id = ${plainId} and shard = 0`,
    says: /its counters \(.*\) are not its rows/,
  },
  {
    name: 'an item has a result after its final one',
    breaks: 'I2',
    plant: (tx) => tx`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key, input_hash,
        source, worker_id, code_version)
      select tenant_id, operation_id, ord, item_key, attempt, 'failed', 'conflict', effect_key, input_hash, source, worker_id,
        code_version
      from ledger_entries where operation_id = ${plainId} and item_key = 'a0'`,
    says: /is failed after it was applied/,
  },
  {
    name: 'an effect is called absent, and was done',
    breaks: 'I3',
    plant: (tx) => tx`update effects set state = 'absent' where effect_key = 'plain:a0'`,
    says: /was done 1 times, and is absent: 0 of them can be accounted for/,
  },
  {
    name: 'an item below the cursor has no effect, entry or retry',
    breaks: 'I7',
    plant: async (tx) => {
      await purging(tx)
      await tx`delete from ledger_entries where operation_id = ${plainId} and item_key = 'a5'`
      await tx`delete from effects where effect_key = 'plain:a5'`
    },
    says: /is in no place or in two/,
  },
  {
    name: 'an effect was claimed under an epoch that its shard never had',
    breaks: 'I4',
    plant: (tx) => tx`update effects set lease_epoch = 99 where effect_key = 'plain:a0'`,
    says: /was claimed under epoch 99/,
  },
  {
    name: 'an entry of a worker names none',
    breaks: 'I4',
    plant: (tx) => tx`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, effect_key, input_hash, source, code_version)
      select tenant_id, operation_id, ord, item_key, attempt, effect_key, input_hash, 'late_worker', code_version
      from ledger_entries where operation_id = ${plainId} and item_key = 'a0'`,
    says: /an entry of a late_worker that nobody signed/,
  },
  {
    name: 'a final state is left',
    breaks: 'I5',
    plant: async (tx) => {
      await tx`
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
        select tenant_id, id, version + 1, 'status_changed', 'running', 'system:settle' from operations where id = ${plainId}`
      await tx`
        update operations set status = 'running', completed_at = null, version = version + 1 where id = ${plainId}`
    },
    says: /left partially_succeeded for running/,
  },
  {
    name: 'a version has no event',
    breaks: 'I5',
    plant: (tx) => tx`update operations set version = version + 1 where id = ${plainId}`,
    says: /its \d+ events end at/,
  },
  {
    name: 'a cancel that was answered is forgotten',
    breaks: 'I6',
    plant: (tx) => tx`update operations set cancel_requested_at = null, status = 'succeeded' where id = ${cancelledId}`,
    says: /a cancel was answered, and is forgotten/,
  },
  {
    name: 'an effect was claimed after the cancel',
    breaks: 'I6',
    plant: (tx) => tx`
      update effects set claimed_at = (select cancel_requested_at from operations where id = ${cancelledId}) + interval '1 ms'
      where effect_key = 'plain:d0'`,
    says: /was claimed .* after the cancel/,
  },
  {
    name: 'a request was sent after the cancel was acknowledged',
    breaks: 'I6',
    plant: async (tx) => {
      await tx`
        update operations set cancel_requested_at = cancel_requested_at - interval '1 hour' where id = ${cancelledId}`
      await tx`update operation_shards set stop_seen_at = stop_seen_at - interval '1 hour' where operation_id = ${cancelledId}`
      await tx`update effects set claimed_at = claimed_at - interval '1 hour' where operation_id = ${cancelledId}`
    },
    says: /was sent \d+ ms after the cancel of .* was acknowledged/,
  },
  {
    name: 'an item is lost',
    breaks: 'I7',
    plant: (tx) => tx`delete from operation_items where operation_id = ${plainId} and ord = 6`,
    says: /has 6 items of 7, in shards for 7/,
  },
  {
    name: 'a doubt has no case',
    breaks: 'I7',
    plant: (tx) => tx`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key, input_hash,
        source, worker_id, code_version)
      select tenant_id, operation_id, ord, item_key, attempt, 'uncertain', 'ambiguous_effect', effect_key, input_hash, source,
        worker_id, code_version
      from ledger_entries where operation_id = ${plainId} and item_key = 'a2'`,
    says: /is uncertain, and 0 cases hold it/,
  },
  {
    name: 'an item with steps is applied before its last one',
    breaks: 'I3',
    plant: async (tx) => {
      await purging(tx)
      await tx`delete from ledger_entries where operation_id = ${steppedId} and ord = 0 and step = 'two'`
      await tx`
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, effect_key, input_hash, source,
          worker_id, code_version)
        select tenant_id, operation_id, ord, item_key, step, attempt, 'applied', effect_key, input_hash, source, worker_id,
          code_version
        from ledger_entries where operation_id = ${steppedId} and ord = 0 and step = 'one' limit 1`
    },
    says: /the registry and the ledger disagree/,
  },
  {
    name: 'an operation does not end',
    breaks: 'I8',
    plant: (tx) => tx`update operations set status = 'running', completed_at = null where id = ${plainId}`,
    says: /is still running: shards done, 0 waiting, 0 open cases/,
  },
]

describe('what is broken in the database is found', () => {
  it.each(PLANTS)('$breaks: $name', async ({ plant, breaks, says }) => {
    const found = await findPlanted(plant)
    expect(found.filter(({ invariant }) => invariant === breaks).map((each) => each.says)).toEqual(
      expect.arrayContaining([expect.stringMatching(says)]),
    )
  })
})

describe('what the judge says is held against the database', () => {
  const logged = (change: EffectLog): Judge => ({ ...judge, read: () => ({ ...effects.entries(), ...change }) })
  const entry = (requests: number, applied: number) => ({ requests, applied, arrivals: [], appliedAt: [] })

  it.each<[string, string, EffectLog[string], RegExp]>([
    ['done twice', 'plain:a0', entry(1, 2), /was done 2 times, and is applied: 1 of them can be accounted for/],
    ['failed, and done', 'plain:a2', entry(1, 1), /was done 1 times, and is absent: 0/],
    ['applied, and never done', 'plain:a0', entry(1, 0), /is applied, and was done 0 times, not 1/],
    ['a step done twice', 'stepped:c0/one', entry(1, 2), /was done 2 times, and is applied: 1/],
    ['sent once more than claimed', 'plain:a0', entry(2, 1), /was sent 2 times and claimed 1 times/],
    ['sent by nobody', 'plain:stranger', entry(1, 0), /was sent, and nobody has claimed it/],
  ])('I3: %s', async (_name, key, said, says) => {
    const found = await check({ judges: [logged({ [key]: said })] })
    expect(found).toEqual([{ invariant: 'I3', subject: key, says: expect.stringMatching(says) }])
  })

  it('I3: not of what was unprocessed', async () => {
    const unsent = [...(await service.items(cancelledId)).values()].find(({ state }) => state === 'unprocessed')
    const key = unsent?.effectKey ?? ''
    const found = await check({ judges: [logged({ [key]: entry(1, 1) })] })
    expect(found.map(({ subject }) => subject)).toContain(key)
  })

  it('names the evidence that was wrong instead, where an uncertain send was closed as not applied', async () => {
    const { id } = await submit('plain', 'e', ['reset'])
    await untilStatus(service, id, 'reconciliation_required')
    await resolve(id, 'not_applied')
    await untilStatus(service, id, 'failed')
    const late = logged({ 'plain:e0': entry(1, 1) })
    expect(await check({ judges: [late] })).toEqual([])
    expect(await wrongEvidence(sql, [id], judge)).toEqual([])
    expect(await wrongEvidence(sql, [id], late)).toEqual([
      { effectKey: 'plain:e0', applied: 1, evidence: [expect.objectContaining({ send: 1, evidence: 'log' })] },
    ])
  })

  it('I8: but not what may stay open', async () => {
    const { id } = await submit('plain', 'f', ['reset', 'ok'])
    await untilStatus(service, id, 'reconciliation_required')
    expect(invariantsOf(await check())).toEqual(['I8'])
    expect(await check({ expected: { open: ({ status }) => status === 'reconciliation_required' } })).toEqual([])
    expect(await check({ phase: 'during' })).toEqual([])
    await resolve(id, 'not_applied')
    await untilStatus(service, id, 'partially_succeeded')
  })

  it('I8: what came too late', async () => {
    expect(invariantsOf(await check({ deadline: Date.now() - 3_600_000 }))).toEqual(['I8'])
    expect(await check({ deadline: Date.now() + 1_000 })).toEqual([])
  })
})

describe('what has gone backwards between two looks is found', () => {
  const between = async (change: (tx: postgres.TransactionSql) => Promise<unknown>): Promise<Violation[]> => {
    let found: Violation[] = []
    const planted = sql.begin(async (tx) => {
      const watcher = createWatcher(tx as unknown as postgres.Sql)
      const ids = operationIds(history)
      // a shard that is held, to take it away from its holder
      await tx`
        update operation_shards set state = 'leased', lease_owner = ${engine.workerId}::uuid, lease_expires_at = now(),
          lease_ms = 2000
        where operation_id = ${plainId} and shard = 0`
      expect(await watcher.look(ids)).toEqual([])
      await change(tx)
      found = await watcher.look(ids)
      throw ROLLED_BACK
    })
    await expect(planted).rejects.toBe(ROLLED_BACK)
    return found
  }

  it.each<[Invariant, string, (tx: postgres.TransactionSql) => Promise<unknown>, RegExp]>([
    [
      'I4',
      'an epoch',
      (tx) =>
        tx`update operation_shards set lease_epoch = lease_epoch - 1 where operation_id = ${plainId} and shard = 1`,
      /^epoch \d+ became \d+$/,
    ],
    [
      'I4',
      'a cursor',
      (tx) =>
        tx`update operation_shards set cursor = from_ord where operation_id = ${cancelledId} and cursor > from_ord`,
      /^the cursor went back from/,
    ],
    [
      'I4',
      'a cursor that moved while nobody held the shard',
      (tx) =>
        tx`update operation_shards set cursor = cursor + 1 where operation_id = ${cancelledId} and cursor < to_ord`,
      /^the cursor moved to \d+, and nobody held it$/,
    ],
    [
      'I4',
      'a claim under an epoch that had ended',
      async (tx) => {
        await tx`update effects set lease_epoch = 0, claimed_at = clock_timestamp() where effect_key = 'plain:a0'`
      },
      /^was claimed under epoch 0, when its shard was at \d+$/,
    ],
    [
      'I4',
      'an outcome that a stranger wrote as the worker',
      (tx) => tx`
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, reason_code, effect_key, input_hash, source,
          worker_id, code_version)
        select tenant_id, operation_id, ord, item_key, attempt, 'ODD', effect_key, input_hash, 'worker', ${plainId}::uuid, 'c1'
        from ledger_entries where operation_id = ${plainId} and item_key = 'a0'`,
      /reported ODD as its worker, and the shard was not its own$/,
    ],
    [
      'I5',
      'a version',
      (tx) => tx`update operations set version = version - 1 where id = ${plainId}`,
      /^version \d+ became \d+$/,
    ],
    [
      'I5',
      'a final status',
      (tx) => tx`
        update operations set status = 'running', completed_at = null, version = version + 1 where id = ${plainId}`,
      /^left partially_succeeded for running$/,
    ],
    [
      'I2',
      'the ledger',
      async (tx) => {
        await purging(tx)
        await tx`delete from ledger_entries where operation_id = ${plainId} and item_key = 'a0'`
      },
      /^the ledger had \d+ entries, and has \d+$/,
    ],
    ['I7', 'an operation', (tx) => tx`delete from operations where id = ${plainId}`, /^was there, and is gone$/],
  ])('%s: %s', async (invariant, _name, change, says) => {
    const found = await between(change)
    expect(found.filter((each) => each.invariant === invariant).map((each) => each.says)).toEqual(
      expect.arrayContaining([expect.stringMatching(says)]),
    )
  })

  it('but nothing where nothing has', async () => {
    expect(await between(async () => {})).toEqual([])
  })
})

it('answers of a real run have an order', () => {
  expect(checkLinearizable(history.calls())).toEqual([])
})
