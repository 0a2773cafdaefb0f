import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Sql } from '../../src/storage/connection.ts'
import { type Database, type DatabaseOptions, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { untilWaiting } from '../support/races.ts'
import { openTcpProxy, type TcpProxy, type Verdict } from '../support/tcp-proxy.ts'

const RECOVERY_MS = 5_000

let testDatabase: TestDatabase
/** A session besides the pool: it kills, and reads what really happened. */
let admin: postgres.Sql
const opened: Database[] = []
const proxies: TcpProxy[] = []

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  admin = postgres(testDatabase.url, { max: 2, onnotice: () => {} })
  await admin`create table facts (transaction text, step int)`
  await admin`create table locks (id int primary key)`
  await admin`insert into locks values (1)`
  await admin.unsafe(`create function raise(code text) returns void language plpgsql as
    $$ begin raise exception 'planted' using errcode = code; end $$`)
})
afterAll(async () => {
  await admin.end({ timeout: 1 })
  await testDatabase.drop()
})
beforeEach(() => admin`truncate facts`)
afterEach(async () => {
  await Promise.all(opened.splice(0).map((database) => database.close()))
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()))
})

const open = (options: Partial<DatabaseOptions> = {}): Database => {
  const database = openDatabase({ url: testDatabase.url, size: 1, name: 'faults', ...options })
  opened.push(database)
  return database
}
const openBehind = async (decide: (statement: string) => Verdict, options: Partial<DatabaseOptions> = {}) => {
  const proxy = await openTcpProxy(testDatabase.url, decide)
  proxies.push(proxy)
  return { proxy, database: open({ ...options, url: proxy.url }) }
}

/** Steps that were committed, in order. */
const committed = async (): Promise<number[]> =>
  (await admin`select step from facts order by step`).map(({ step }) => step)
const write = (sql: Sql, step: number) => sql`insert into facts values ('t', ${step})`
const pidOf = async (sql: Sql): Promise<number> => {
  const [row] = await sql<{ pid: number }>`select pg_backend_pid() as pid`
  return row?.pid ?? 0
}
const kill = (pid: number) => admin`select pg_terminate_backend(${pid}, 5000)`
const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'it did not fail',
    (error: unknown) => error,
  )
const isUsableAgain = async (database: Database): Promise<void> => {
  const giveUpAt = performance.now() + RECOVERY_MS
  for (;;) {
    try {
      expect(await database.query(({ sql }) => sql`select 1 as one`)).toEqual([{ one: 1 }])
      return
    } catch (error) {
      if (performance.now() > giveUpAt) throw error
    }
  }
}
const UNAVAILABLE = { code: 'database-unavailable' }

describe.each([true, false])('with prepared statements: %s', (prepare) => {
  test.each([1, 2, 3, 4])(
    'case 93: a backend that is killed before step %i of a transaction leaves nothing of it',
    async (at) => {
      const database = open({ prepare })
      for (let round = 0; round < 5; round++) {
        const error = await failure(
          database.transaction(async ({ sql }) => {
            const pid = await pidOf(sql)
            for (const step of [1, 2, 3]) {
              if (step === at) await kill(pid)
              await write(sql, step)
            }
            if (at === 4) await kill(pid)
          }),
        )
        expect(error).toMatchObject(UNAVAILABLE)
        expect(await committed()).toEqual([])
        await isUsableAgain(database)
      }
    },
  )

  test('case 93: a callback that goes on after its backend died reaches nobody, while another has the slot', async () => {
    const database = open({ prepare })
    const later: Promise<unknown>[] = []
    await failure(
      database.transaction(async ({ sql }) => {
        await write(sql, 1)
        await kill(await pidOf(sql))
        later.push(
          (async () => {
            await isUsableAgain(database)
            return failure(write(sql, 2))
          })(),
        )
        await write(sql, 3)
      }),
    )
    await database.transaction(({ sql }) => write(sql, 10))
    expect(await Promise.all(later)).toMatchObject([UNAVAILABLE])
    expect(await committed()).toEqual([10])
  })

  test.each([
    ['a new connection', false],
    ['a connection that knows its statements', true],
  ])(
    'a backend that is killed while it waits for the lock, on %s: the work behind the lock never lands',
    async (_, warm) => {
      const database = open({ prepare })
      const lockThenWork = () =>
        database.lockThenWork((sql) => ({
          lock: sql`select 1 from locks where id = ${1} for no key update`,
          work: write(sql, 1),
        }))
      for (let round = 0; round < 3; round++) {
        if (warm) await lockThenWork()
        await admin`truncate facts`
        const holder = await admin.reserve()
        await holder`begin`
        await holder`select 1 from locks where id = 1 for no key update`
        const running = failure(lockThenWork())
        await untilWaiting(observer(), 1)
        await admin`select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event_type = 'Lock'
        and datname = current_database()`
        expect(await running).toMatchObject(UNAVAILABLE)
        await isUsableAgain(database)
        await holder`rollback`
        holder.release()
        expect(await committed()).toEqual([])
      }
    },
  )

  test.each(['begin', 'lock', 'work', 'commit'])(
    'the way to the database is cut before %s: nothing lands',
    async (at) => {
      const patterns = { begin: /^begin/, lock: /^select 1 from locks/, work: /^insert/, commit: /^commit/ }
      const pattern = patterns[at as keyof typeof patterns]
      let armed = true
      const { database } = await openBehind((statement) => (armed && pattern.test(statement) ? 'cut' : 'pass'), {
        prepare,
      })
      for (let round = 0; round < 3; round++) {
        armed = true
        const error = await failure(
          database.lockThenWork((sql) => ({
            lock: sql`select 1 from locks where id = ${1} for no key update`,
            work: write(sql, 1),
          })),
        )
        armed = false
        expect(error).toMatchObject(UNAVAILABLE)
        await isUsableAgain(database)
        expect(await committed()).toEqual([])
      }
    },
  )

  test('the reply to a COMMIT is lost: the caller is told, the commit stands, nothing runs twice', async () => {
    let armed = true
    const { database } = await openBehind((statement) => (armed && statement === 'commit' ? 'lose-reply' : 'pass'), {
      prepare,
    })
    const inTransaction = failure(database.transaction(({ sql }) => write(sql, 1)))
    expect(await inTransaction).toMatchObject(UNAVAILABLE)
    const lockedThenWorked = failure(
      database.lockThenWork((sql) => ({
        lock: sql`select 1 from locks where id = ${1} for no key update`,
        work: write(sql, 2),
      })),
    )
    expect(await lockedThenWorked).toMatchObject(UNAVAILABLE)
    armed = false
    await isUsableAgain(database)
    expect(await committed()).toEqual([1, 2])
  })

  test('the reply to a statement within a transaction is lost: the transaction is rolled back', async () => {
    let armed = true
    const { database } = await openBehind(
      (statement) => (armed && statement.startsWith('insert') ? 'lose-reply' : 'pass'),
      {
        prepare,
      },
    )
    const error = await failure(
      database.transaction(async ({ sql }) => {
        await write(sql, 1)
        await write(sql, 2)
      }),
    )
    armed = false
    expect(error).toMatchObject(UNAVAILABLE)
    await isUsableAgain(database)
    expect(await committed()).toEqual([])
  })
})

/** What a prepared statement is lost by: each takes the plans of the one connection. */
const LOSSES: [string, (database: Database) => Promise<unknown>][] = [
  ['a pooler that gave the connection another server', (database) => script(database, 'deallocate all')],
  ['a migration', () => admin`alter table shapes add column more int`],
]
const script = (database: Database, text: string): Promise<void> =>
  database.query((connection) => connection.script(text))

describe.each(LOSSES)('statements that were lost by %s', (_, lose) => {
  beforeEach(() =>
    admin.unsafe('drop table if exists shapes; create table shapes (id int); insert into shapes values (1)'),
  )

  /** Each of them notes its transaction; the plan of `first` or of `second` is for a table that changes. */
  const noted = (sql: Sql, step: number) =>
    sql<{ id: number }>`
      with s as (insert into facts select pg_current_xact_id()::text, ${step}) select *, pg_current_xact_id()::text as xid from shapes`
  const plain = (sql: Sql, step: number) => sql`insert into facts values (pg_current_xact_id()::text, ${step})`
  const ways: Record<string, (database: Database, first: typeof plain, second: typeof plain) => Promise<unknown>> = {
    'a transaction': (database, first, second) =>
      database.transaction(async ({ sql }) => {
        await first(sql, 1)
        await second(sql, 2)
      }),
    'a transaction that waits for nothing in between': (database, first, second) =>
      database.transaction(({ sql }) => Promise.all([first(sql, 1), second(sql, 2)])),
    'a pipeline': (database, first, second) =>
      database.lockThenWork((sql) => ({ lock: first(sql, 1), work: second(sql, 2) })),
    'a pipeline of three': (database, first, second) =>
      database.lockThenWork((sql) => ({ lock: first(sql, 1), work: second(sql, 2), also: plain(sql, 3) })),
  }

  test.each(
    Object.keys(ways).flatMap((way) => [
      [way, 'first', noted, plain] as const,
      [way, 'second', plain, noted] as const,
      [way, 'only', noted, noted] as const,
    ]),
  )('%s is whole, also where it is the %s one', async (way, _which, first, second) => {
    const database = open()
    const run = ways[way] as (typeof ways)[string]
    await run(database, first, second)
    await admin`truncate facts`
    await lose(database)
    await run(database, first, second)
    const facts = await admin`select step, dense_rank() over (order by transaction)::int as of from facts order by step`
    const steps = way === 'a pipeline of three' ? [1, 2, 3] : [1, 2]
    expect(facts).toEqual(steps.map((step) => ({ step, of: 1 })))
  })

  test('are sent again by themselves where no transaction is around them', async () => {
    const database = open()
    const read = () => database.query(({ sql }) => noted(sql, 1))
    await read()
    await lose(database)
    await read()
    expect(await committed()).toEqual([1, 1])
  })
})

test.each(['transaction', 'pipeline'])(
  'a BEGIN that fails ends the connection of a %s: nothing follows',
  async (way) => {
    let armed = true
    const { database } = await openBehind((statement) => (armed && statement === 'begin' ? 'refuse' : 'pass'))
    const pid = await database.query(({ sql }) => pidOf(sql))
    const done: number[] = []
    const error = await failure(
      way === 'pipeline'
        ? database.lockThenWork((sql) => ({ lock: write(sql, 1), work: write(sql, 2) }))
        : database.transaction(async ({ sql }) => {
            for (const step of [1, 2, 3]) {
              await write(sql, step)
              done.push(step)
            }
          }),
    )
    armed = false
    expect(error).toMatchObject(UNAVAILABLE)
    // what had left with it may stand, as after a COMMIT without an answer; the caller is told that much
    expect(done).toEqual([])
    expect(await committed()).not.toContain(3)
    await isUsableAgain(database)
    expect(await database.query(({ sql }) => pidOf(sql))).not.toBe(pid)
  },
)

let observing: Database | undefined
const observer = (): Database => {
  observing ??= openDatabase({ url: testDatabase.url, size: 1, name: 'observer' })
  return observing
}
afterAll(async () => {
  await observing?.close()
})

/** Transactions at once: more than there are connections. */
const LANES = 120
const TRANSACTIONS_MIN = 120
const TRANSACTIONS_MAX = 50_000
/** Of them, those that have to meet a kill. */
const STRUCK_MIN = 3

test('case 91: sessions are killed again and again under load: every transaction is there as a whole or not at all', async () => {
  const database = open({ size: 4, acquireMs: 60_000 })
  const outcomes = { committed: 0, unavailable: 0 }
  let killing = true
  const killer = (async () => {
    while (killing) {
      await admin`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'faults' and random() < 0.4`
      await new Promise((resolve) => setTimeout(resolve, 30))
    }
  })()
  const rows =
    (name: string) =>
    async ({ sql }: { sql: Sql }) => {
      for (const step of [1, 2, 3]) await sql`insert into facts values (${name}, ${step})`
    }
  // on a fast machine all of them can be over between two kills: so it goes on until enough were struck
  let begun = 0
  const lane = async (): Promise<void> => {
    while (begun < TRANSACTIONS_MAX && (begun < TRANSACTIONS_MIN || outcomes.unavailable < STRUCK_MIN)) {
      const error = await database.transaction(rows(`t${begun++}`)).then(
        () => null,
        (thrown: unknown) => thrown,
      )
      if (error !== null) expect(error).toMatchObject(UNAVAILABLE)
      outcomes[error === null ? 'committed' : 'unavailable']++
    }
  }
  await Promise.all(Array.from({ length: LANES }, lane))
  killing = false
  await killer
  await isUsableAgain(database)
  expect(outcomes.unavailable).toBeGreaterThanOrEqual(STRUCK_MIN)
  const torn =
    await admin`select transaction from facts group by transaction having count(*) <> 3 or count(distinct step) <> 3`
  expect(torn).toEqual([])
  const [whole] = await admin`select count(distinct transaction)::int as n from facts`
  // a COMMIT whose reply was lost is reported as a fault and stands
  expect(whole?.n).toBeGreaterThanOrEqual(outcomes.committed)
})

test('a server that is not there is told in one way, and is found when it is back', async () => {
  const { proxy, database } = await openBehind(() => 'pass', { size: 2 })
  await isUsableAgain(database)
  for (let round = 0; round < 3; round++) {
    await proxy.refuse()
    // the first one may still meet the connection that has just been cut
    for (let tries = 0; tries < 3; tries++) {
      expect(await failure(database.query(({ sql }) => sql`select 1`))).toMatchObject(UNAVAILABLE)
    }
    expect(await failure(database.transaction(({ sql }) => sql`select 1`))).toMatchObject(UNAVAILABLE)
    await proxy.accept()
    await isUsableAgain(database)
  }
})

test('case 95: a slot that does not become free within its deadline is an overload, and nothing stays open', async () => {
  const database = open({ size: 1, acquireMs: 200 })
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const holding = database.transaction(async ({ sql }) => {
    await write(sql, 1)
    await released
  })
  const waiting = Array.from({ length: 20 }, () => failure(database.query(({ sql }) => sql`select 1`)))
  for (const error of await Promise.all(waiting)) expect(error).toMatchObject({ code: 'overloaded' })
  release()
  await holding
  await isUsableAgain(database)
  const idle =
    await admin`select 1 from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`
  expect(idle).toEqual([])
})

test('a lock that is not free in time is asked for again as a whole, for as long as one statement may take, and then told', async () => {
  const database = open({ lockMs: 300, statementMs: 1_000 })
  await isUsableAgain(database)
  const holder = await admin.reserve()
  await holder`begin`
  await holder`select 1 from locks where id = 1 for no key update`
  let tries = 0
  const error = await failure(
    database.lockThenWork((sql) => {
      tries++
      return { lock: sql`select 1 from locks where id = ${1} for no key update`, work: write(sql, 1) }
    }),
  )
  expect(error).toMatchObject({ ...UNAVAILABLE, cause: { code: '55P03' } })
  expect(tries).toBeGreaterThan(1)
  expect(tries, '300 ms each, and none after 1 s').toBeLessThanOrEqual(4)
  await holder`rollback`
  holder.release()
  expect(await committed()).toEqual([])
  await isUsableAgain(database)
})

/** Serialisation failure, deadlock, lock timeout: each rolls back a whole transaction, and says nothing about its work. */
describe.each(['40001', '40P01', '55P03'])('SQLSTATE %s', (code) => {
  const raise = (sql: Sql) => sql`select raise(${code})`
  const waysOf = (
    database: Database,
    tried: () => void,
  ): Record<'transaction' | 'pipeline', () => Promise<unknown>> => ({
    transaction: () =>
      database.transaction(async ({ sql }) => {
        tried()
        await write(sql, 1)
        await raise(sql)
      }),
    pipeline: () =>
      database.lockThenWork((sql) => {
        tried()
        return { lock: write(sql, 1), work: raise(sql) }
      }),
  })

  test.each(['transaction', 'pipeline'] as const)(
    'a %s is repeated so many times, and then told as 503',
    async (way) => {
      const database = open()
      const pid = await database.query(({ sql }) => pidOf(sql))
      let tries = 0
      const error = await failure(waysOf(database, () => tries++)[way]())
      expect(error).toMatchObject({ ...UNAVAILABLE, cause: { code } })
      expect(tries).toBe(8)
      expect(await committed()).toEqual([])
      expect(await database.query(({ sql }) => pidOf(sql)), 'the connection is as good as before').toBe(pid)
    },
  )

  test('a statement of its own is told as 503', async () => {
    const database = open()
    expect(await failure(database.query(({ sql }) => raise(sql)))).toMatchObject({ ...UNAVAILABLE, cause: { code } })
    await isUsableAgain(database)
  })
})

test('case 103: a server that has become read-only is a fault of the database, not of the work', async () => {
  const database = open()
  const error = await failure(
    database.transaction(async ({ sql }) => {
      await sql`set transaction read only`
      await write(sql, 1)
    }),
  )
  expect(error).toMatchObject(UNAVAILABLE)
  await isUsableAgain(database)
})

test('after close everything is refused, and close waits for nobody', async () => {
  const database = openDatabase({ url: testDatabase.url, size: 1, name: 'faults' })
  await database.query(({ sql }) => sql`select 1`)
  await database.close()
  expect(await failure(database.query(({ sql }) => sql`select 1`))).toMatchObject({ code: 'shutting-down' })
})
