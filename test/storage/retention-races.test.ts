/** What is forgotten by age while it is asked for: a key names one thing or a new one, and never a fault. */
import { pino } from 'pino'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { parseId } from '../../src/domain/ids.ts'
import { OPERATION_STATUSES } from '../../src/domain/operation.ts'
import type { CallbackStatement, Json } from '../../src/domain/operation-type.ts'
import { abandonedUploads, housekeeping } from '../../src/maintenance/janitor.ts'
import { retention } from '../../src/maintenance/retention.ts'
import type { ServiceContext } from '../../src/services/context.ts'
import { createBulkAction } from '../../src/services/create-bulk-action.ts'
import { receiveCallback } from '../../src/services/receive-callback.ts'
import { openSubmissionWriter } from '../../src/services/submission-writer.ts'
import { submitOperation } from '../../src/services/submit.ts'
import { texts } from '../../src/storage/array-literal.ts'
import type { Connection } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { forgetOldCallbacks, forgetOldDryRuns } from '../../src/storage/housekeeping.ts'
import { type DraftApi, openDraftApi } from '../support/drafts.ts'
import { CHORES } from '../support/old-rows.ts'
import { plantEffects, plantedType, plantOperation } from '../support/planted-operation.ts'
import { wipe } from '../support/races.ts'
import { principal } from '../support/service.ts'
import { submitRequest } from '../support/submit-request.ts'

const CLIENTS = 20
const KEYS = 5
/** Bulk actions made before the storm is over. */
const STORM_MADE = 10 * KEYS
/** More than any of these requests needs. */
const CALLS = 6

const type = plantedType('grant', {
  callback: { verify: () => true, read: (event: Json) => event as Json & CallbackStatement },
})
let api: DraftApi
let database: Database
beforeAll(async () => {
  api = await openDraftApi([type])
  database = api.service.database
})
afterAll(() => api.close())
beforeEach(() => wipe(database))

const BULK = { action: 'cancel' as const, filter: { type: 'grant' }, reason: 'incident 7' }
const query = (work: (connection: Connection) => Promise<unknown>) => database.query(work)
const ageDryRuns = () => query(({ sql }) => sql`update bulk_actions set expires_at = now() - interval '31 days'`)

/** The database of a request in whose midst, before its n-th call, something happens. */
const interrupted = (happens: Record<number, () => Promise<unknown>>): { database: Database; calls(): number } => {
  let calls = 0
  const before = async <T>(run: () => Promise<T>): Promise<T> => {
    calls++
    await happens[calls]?.()
    return run()
  }
  return {
    database: {
      query: (work) => before(() => database.query(work)),
      transaction: (work) => before(() => database.transaction(work)),
      lockThenWork: (steps) => before(() => database.lockThenWork(steps)),
      queuedMs: () => 0,
      close: async () => {},
    },
    calls: () => calls,
  }
}

interface Keeper {
  /** Asks with the one key, over this connection; the first who asks makes what it names. */
  ask(through: Database): Promise<{ name: string; isNew: boolean }>
  forget(): Promise<unknown>
  /** How many things the key names. */
  count(): Promise<number>
}

const contextOf = (through: Database): ServiceContext => ({ ...api.service.context, database: through })
const countOf = async (statement: (connection: Connection) => Promise<{ n: number }[]>): Promise<number> =>
  (await database.query(statement))[0]?.n ?? -1

let events = 0
const keepers: Record<string, Keeper> = {
  'a bulk action': {
    async ask(through) {
      const { action, replayed } = await createBulkAction(contextOf(through), principal, {
        ...BULK,
        filter: {
          status: [],
          type: 'grant',
          requestedBy: null,
          labels: {},
          createdAfter: null,
          createdBefore: null,
          replayOf: null,
        },
        scope: null,
        dryRun: true,
        ratePerSecond: 10,
        idempotencyKey: 'one',
        body: BULK,
      })
      return { name: action.id, isNew: !replayed }
    },
    async forget() {
      await ageDryRuns()
      await query(forgetOldDryRuns)
    },
    count: () => countOf(({ sql }) => sql`select count(*)::int as n from bulk_actions`),
  },
  'a callback': {
    async ask(through) {
      const { duplicate } = await receiveCallback(contextOf(through), {
        type: 'grant',
        headers: { 'webhook-id': 'one' },
        body: Buffer.from('{"effectKey":"k","state":"applied"}'),
        tenantId: null,
      })
      if (!duplicate) events++
      return { name: `event ${events}`, isNew: !duplicate }
    },
    async forget() {
      await query(({ sql }) => sql`update callback_inbox set processed_at = now() - interval '31 days'`)
      await query(forgetOldCallbacks)
    },
    count: () => countOf(({ sql }) => sql`select count(*)::int as n from callback_inbox`),
  },
  // an operation is never forgotten, only what it holds: by hand, as an operator would who empties a table
  'an operation': {
    ask: (through) => submitOne(through),
    forget: () => query(({ sql }) => sql`delete from operations where idempotency_key = 'one'`),
    count: () => countOf(({ sql }) => sql`select count(*)::int as n from operations where idempotency_key = 'one'`),
  },
}

const submitOne = async (through: Database): Promise<{ name: string; isNew: boolean }> => {
  const request = submitRequest('grant', [{ key: 'a', input: {} }], { idempotencyKey: 'one' })
  const context = {
    ...contextOf(through),
    writeSubmission: openSubmissionWriter({ database: through }),
    downloads: false,
  }
  const submitted = await submitOperation(context, principal, request)
  return { name: 'id' in submitted ? submitted.id : submitted.state.id, isNew: !submitted.replayed }
}

describe.each(Object.entries(keepers))('%s whose key is forgotten', (_, keeper) => {
  test('at any line of a request that repeats it: the old one is told, or a new one is made (case 33)', async () => {
    let reached = true
    let call = 1
    for (; reached; call++) {
      await keeper.forget()
      const first = await keeper.ask(database)
      expect(first.isNew).toBe(true)
      const request = interrupted({ [call]: keeper.forget })
      const second = await keeper.ask(request.database)
      reached = request.calls() >= call
      expect(second.isNew).toBe(second.name !== first.name)
      if (second.isNew) expect(await keeper.count()).toBe(1)
    }
    expect(call).toBeGreaterThan(2)
  })

  test('after another was first with it, and before it is read who that was: a new one is made (case 33)', async () => {
    for (let call = 1; call <= CALLS; call++) {
      await keeper.forget()
      let other: Awaited<ReturnType<Keeper['ask']>> | undefined
      const request = interrupted({
        [call]: async () => {
          other = await keeper.ask(database)
        },
        [call + 1]: keeper.forget,
      })
      const second = await keeper.ask(request.database)
      // where the other was not first, this one was
      expect(second.isNew).toBe(!other?.isNew || second.name !== other.name)
    }
  })
})

test('an operation that retention has taken all it may of keeps its key, at any line of a request that repeats it (case 33)', async () => {
  const purge = async (): Promise<void> => {
    await query(({ script }) =>
      script(`update operations set status = 'cancelled', cancel_requested_at = now(),
          completed_at = coalesce(completed_at, now() - interval '10 years') where completed_at is null;
        update operation_shards set state = 'done', last_progress_at = now() - interval '10 years'`),
    )
    const janitor = retention(api.service.context, pino({ level: 'silent' }))
    while ((await janitor.runOnce()).more);
    expect(await countOf(({ sql }) => sql`select count(*)::int as n from operation_items`)).toBe(0)
  }
  let reached = true
  for (let call = 1; reached; call++) {
    await wipe(database)
    const first = await submitOne(database)
    const request = interrupted({ [call]: purge })
    expect(await submitOne(request.database)).toEqual({ name: first.name, isNew: false })
    reached = request.calls() >= call
    await purge()
    expect(await submitOne(database)).toEqual({ name: first.name, isNew: false })
    expect(
      await countOf(({ sql }) => sql`select count(*)::int as n from operations where idempotency_key = 'one'`),
    ).toBe(1)
  }
})

test('keys of bulk actions used again and again at the end of their time: no fault, and no two for one (case 33)', async () => {
  const announced = new Map<string, number>()
  const told = new Set<string>()
  const goesOn = (): boolean => announced.size < STORM_MADE && [...statuses.keys()].every((status) => status === 202)
  const statuses = new Map<number, number>()
  const client = async (number: number): Promise<void> => {
    for (let round = 0; goesOn(); round++) {
      const key = `key-${(number + round) % KEYS}`
      const { status, headers, body } = await api.call('POST', '/bulk-actions', JSON.stringify(BULK), {
        'content-type': 'application/json',
        'idempotency-key': key,
      })
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
      told.add(body.id)
      if (headers.get('idempotent-replayed') === null) announced.set(body.id, (announced.get(body.id) ?? 0) + 1)
    }
  }
  /** Their time passes in an instant, once whoever made them was told. */
  const own = openDatabase({ url: api.service.url, size: 2, name: 'janitors' })
  const janitor = async (): Promise<void> => {
    while (goesOn()) {
      const ids = texts([...announced.keys()].map((id) => parseId('bulk', id) ?? ''))
      await own.query(
        ({ sql }) => sql`
          with x as materialized (
            select tenant_id, id from bulk_actions where id = any(${ids}::uuid[]) and random() < 0.5
            order by id for no key update skip locked)
          update bulk_actions b set expires_at = now() - interval '31 days' from x
          where b.tenant_id = x.tenant_id and b.id = x.id`,
      )
      await own.query(forgetOldDryRuns)
    }
  }
  await Promise.all([janitor(), janitor(), ...Array.from({ length: CLIENTS }, (_, number) => client(number))])
  await own.close()
  expect([...statuses.keys()]).toEqual([202])
  // each one that was ever told of was made once, by one request that was told so
  expect([...told].filter((id) => announced.get(id) !== 1)).toEqual([])
  expect([...told].every((id) => parseId('bulk', id) !== null)).toBe(true)
})

describe('housekeeping beside another session', () => {
  test.each(Object.entries(CHORES))(
    '%s: it waits for nobody, so that no two of it wait for each other (case 97)',
    async (_, { run, table, plant }) => {
      await query(({ script }) => script(`delete from ${table}; ${plant}`))
      const other = postgres(api.service.url, { max: 1, onnotice: () => {} })
      try {
        await other.unsafe('begin')
        // the lock that the delete of another janitor has
        const [held] = await other.unsafe(`select ctid::text from ${table} limit 1 for update`)
        await query(run)
        const rows = await other.unsafe(`select ctid::text from ${table}`)
        expect(rows.map((row) => row.ctid)).toEqual([held?.ctid])
        await other.unsafe('commit')
        await query(run)
        expect(await other.unsafe(`select 1 from ${table}`)).toHaveLength(0)
      } finally {
        await other.end()
      }
    },
  )
})

describe('what is old', () => {
  const countAll = async (): Promise<Map<string, number>> => {
    const rows = await database.query(
      ({ sql }) => sql<{ name: string; n: number }>`
        select c.relname as name, (xpath('/row/n/text()', query_to_xml('select count(*) as n from ' || quote_ident(c.relname),
          false, true, '')))[1]::text::int as n
        from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`,
    )
    return new Map(rows.map(({ name, n }) => [name, n]))
  }

  /** Every time in every table moves by ten years. */
  const age = async (): Promise<void> => {
    const columns = await database.query(
      ({ sql }) => sql<{ table: string; columns: string[] }>`
        select table_name as table, jsonb_agg(column_name) as columns from information_schema.columns c
        where table_schema = 'public' and data_type = 'timestamp with time zone' and is_generated = 'NEVER'
          and exists (select from pg_class t where t.relname = c.table_name and t.relkind in ('r', 'p') and not t.relispartition)
        group by table_name`,
    )
    await database.transaction(async ({ script }) => {
      // no trigger is asked: what is append-only ages too
      await script("set local session_replication_role = 'replica'")
      for (const { table, columns: names } of columns) {
        await script(`update ${table} set ${names.map((name) => `${name} = ${name} - interval '10 years'`).join(', ')}`)
      }
    })
  }

  const plant = async (): Promise<void> => {
    for (const status of OPERATION_STATUSES) {
      const id = await plantOperation(database, {
        type: 'grant',
        status,
        cancelled: ['cancel_requested', 'cancelled', 'completed_after_cancel'].includes(status),
        paused: ['pause_requested', 'paused'].includes(status),
        items: [
          { key: 'a', entries: [{ state: 'applied' }] },
          { key: 'f', entries: [{ state: 'failed', failureClass: 'transient' }] },
          { key: 'u', entries: [{ state: 'uncertain' }] },
          { key: 'open' },
        ],
      })
      await plantEffects(database, id)
      await query(({ script }) =>
        script(`
        insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
            input_hash, send_by)
          values (1, '${id}:u', 'uncertain', 1, '${id}', 0, 2, 1, 1, 'u', 'h', now()),
            (1, '${id}:i', 'intent', 1, '${id}', 0, 3, 1, 1, 'i', 'h', now());
        insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason)
          values (1, '${id}', 1, 0, '${id}:f', 2, 'failed');
        insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause)
          values (1, '${id}', 0, 2, 'grant', 'u', '${id}:u', 1, 'send_outcome_unknown');
        insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
          values (1, '${id}', 1, 'grant', 'f', '${id}:f', 'transient', 3, 'fp');
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
          values (1, '${id}', 1, 'accepted', 'pending', 'tester');
        insert into replay_preflights (tenant_id, operation_id, scope, facts, facts_hash, requested_by, expires_at, used_by)
          values (1, '${id}', '{}', '{}', 'h', 'tester', now(), '${id}');
        insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, facts, url)
          values (1, '${id}', 2, 'operation.settled', 'failed', '{}', 'https://r.example/');
        insert into callback_inbox (type, event_id, body_hash, state, effect_key, tenant_id, operation_id, shard, ord, item_key,
            send, outcome)
          values ('grant', '${id}', 'h', 'applied', '${id}:u', 1, '${id}', 0, 2, 'u', 1, 'deferred')`),
      )
    }
    await query(
      ({ sql }) => sql`
        insert into bulk_actions (tenant_id, id, action, status, filter, reason, rate_per_second, requested_by,
          requester_scopes, request_hash, targets, started_at)
        values (1, gen_random_uuid(), 'cancel', 'running', '{}', 'r', 1, 'tester', '[]', 'h', 1, now())`,
    )
  }
  /** One row each that only served the present. */
  const plantForgettable = (): Promise<unknown> =>
    query(({ script }) =>
      script(
        Object.values(CHORES)
          .map((chore) => chore.plant)
          .join(';'),
      ),
    )

  test('goes only where nothing is open or in doubt: ten years take no operation and nothing of one (case 53)', async () => {
    await plant()
    const before = await countAll()
    await plantForgettable()
    await age()
    for (let runs = 0; runs < 2; runs++) {
      await housekeeping({ database }, pino({ level: 'silent' })).runOnce()
      await abandonedUploads({ database }).runOnce()
      await retention({ database, types: api.service.context.types }, pino({ level: 'silent' })).runOnce()
    }
    const after = await countAll()
    expect(Object.fromEntries(after)).toEqual(Object.fromEntries(before))
    expect(before.get('operations')).toBe(OPERATION_STATUSES.length)
    const forgotten = ['workers', 'type_minutes']
    expect(forgotten.map((table) => after.get(table))).toEqual([0, 0])
  })
})
