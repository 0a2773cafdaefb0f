/**
 * The only way to the database. A pool of *slots*, each one postgres.js client with a single connection.
 *
 * Why not one client with many connections: in postgres.js 3.4 a transaction may begin on a connection that is not
 * reserved when queries queue, and a backend that dies inside a transaction leaves its half-written bytes to the next
 * user of that connection, or throws where nobody can catch. Here a slot has one user at a time, and a slot whose
 * connection closed, for whatever reason, is thrown away whole:
 *
 *   free ──acquire──▶ held ──release──▶ free
 *                      │ connection closed (generation ends)
 *                      ▼
 *                    dead ──▶ replaced by a new client at the next acquire
 *
 * Every statement checks that its slot is still alive, and reaches the client before any I/O event can come between
 * (postgres.js defers by one microtask only). A slot is connected before it is given out, as a statement queued behind
 * a failed connect would otherwise run alone on the next one. A transaction runs on its client's *reserved* connection: while
 * that describes a statement it does not know yet, those behind it wait, and a client that is not reserved would send them
 * to the connection that replaces a lost one, each alone. A reserved one forgets them; here they are rejected. So no statement of a dead transaction can land on a new connection: neither after a cut, nor after a lost COMMIT reply.
 * A COMMIT whose reply was lost surfaces as `connection-lost`: the caller re-reads before it acts.
 *
 * Limits: `size` connections, QUEUE_MAX waiting callers, ACQUIRE_MS for a slot, STATEMENT_MS for a statement. The server
 * enforces the last one; when its answer is overdue by SILENCE_MS, the network went quiet and the slot is given up.
 */
import { drizzle, type PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import postgres from 'postgres'
import { AppError } from '../domain/errors.ts'
import { isDatabaseFault, isRetryable } from './database-faults.ts'

export type Row = Record<string, unknown>
export type Parameter = string | number | bigint | boolean | null | Uint8Array
export type Sql = <T extends object = Row>(
  strings: TemplateStringsArray,
  ...parameters: readonly Parameter[]
) => Promise<T[]>

/** One connection, for the duration of one `transaction`. */
export interface TransactionConnection {
  /** Runs at once; statements not awaited are pipelined in order. */
  readonly sql: Sql
  /** Several statements in one text, without parameters: migrations. */
  readonly script: (text: string) => Promise<void>
}

export interface Connection extends TransactionConnection {
  /** Drizzle on the same connection, for composed reads. It knows nothing of transactions and does not check liveness. */
  readonly db: PostgresJsDatabase
}

export interface Database {
  /** Autocommit statements. Retryable faults are the caller's: a statement may have committed. */
  query<T>(work: (connection: Connection) => Promise<T>): Promise<T>
  /** BEGIN … COMMIT; any error rolls back. 40001, 40P01 and 55P03 repeat the whole work, TRANSACTION_TRIES times at most. */
  transaction<T>(work: (connection: TransactionConnection) => Promise<T>): Promise<T>
  /**
   * Locks, then works: BEGIN, the lock, the work and COMMIT leave in one round trip, and the work sees a snapshot that
   * was taken after the lock was held (DESIGN, L4). `steps` starts its statements without awaiting between them.
   */
  lockThenWork<T>(steps: (sql: Sql) => { lock: Promise<unknown>; work: Promise<T> }): Promise<T>
  close(): Promise<void>
}

export interface DatabaseOptions {
  url: string
  /** Connections at most. */
  size: number
  /** Shown in pg_stat_activity. */
  name: string
  /** false behind a PgBouncer in transaction mode older than 1.21. */
  prepare?: boolean
  acquireMs?: number
  statementMs?: number
  /** How much later than `statementMs` an answer may come. */
  silenceMs?: number
  lockMs?: number
}

const ACQUIRE_MS = 5_000
const STATEMENT_MS = 30_000
const SILENCE_MS = 5_000
const LOCK_MS = 10_000
const IDLE_IN_TRANSACTION_MS = 5_000
const CONNECT_SECONDS = 5
const QUEUE_MAX = 5_000
const TRANSACTION_TRIES = 8

interface Life {
  alive: boolean
  /** Statements without an answer: rejected when the connection closes, also those that the driver never sent. */
  readonly unanswered: Set<(error: unknown) => void>
  /** While the slot is held: fires when nothing was answered for longer than any statement may take. */
  silence: NodeJS.Timeout | null
}

interface Slot extends Life {
  readonly client: postgres.Sql
  readonly connection: Connection
  connected: boolean
}

interface Waiter {
  readonly resolve: (slot: Slot) => void
  readonly reject: (error: unknown) => void
  readonly timer: NodeJS.Timeout
}

const lost = (cause?: unknown): AppError =>
  new AppError('database-unavailable', 'the connection to the database was lost', { cause })

const openSlot = (options: DatabaseOptions): Slot => {
  const life: Life = { alive: true, unanswered: new Set(), silence: null }
  const client = postgres(options.url, {
    max: 1,
    prepare: options.prepare ?? true,
    fetch_types: false,
    connect_timeout: CONNECT_SECONDS,
    idle_timeout: 0,
    max_lifetime: null,
    onnotice: () => {},
    onclose: () => {
      life.alive = false
      for (const reject of life.unanswered) reject(lost())
    },
    // no other start-up parameters: a PgBouncer refuses those that it does not know
    connection: { application_name: options.name, TimeZone: 'UTC' },
  })
  const db = drizzle(client) // mutates its client: times stay text, JSON parameters are passed as text
  return Object.assign(life, { client, connection: { ...statementsOn(life, client), db }, connected: false })
}

const statementsOn = (life: Life, client: postgres.Sql): TransactionConnection => ({
  sql: <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) => {
    if (!life.alive) return Promise.reject(lost())
    // execute() starts it now, awaited or not: that is what pipelines a transaction in one round trip
    return answered(life, client(strings, ...(parameters as never[])).execute() as unknown as Promise<T[]>)
  },
  script: async (text) => {
    if (!life.alive) throw lost()
    await answered(life, client.unsafe(text).simple())
  },
})

const answered = <T>(life: Life, statement: Promise<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    life.unanswered.add(reject)
    const settled = (): void => {
      life.unanswered.delete(reject)
      life.silence?.refresh()
    }
    statement.finally(settled).then(resolve, reject)
  })

/** The statements of a transaction: on the slot's connection and on no other one. */
const reserve = async (slot: Slot): Promise<TransactionConnection & { release(): void }> => {
  if (!slot.alive) throw lost()
  const reserved = await slot.client.reserve()
  return {
    ...statementsOn(slot, reserved),
    release: () => {
      if (slot.alive) reserved.release()
    },
  }
}

/**
 * The limits of a session, set when it is connected. Behind a PgBouncer in transaction mode they may reach another session,
 * which has the same; there they belong to the role (see README, "In production").
 */
const setLimits = async ({ sql }: Connection, options: DatabaseOptions): Promise<void> => {
  await sql`
    select set_config('statement_timeout', ${String(options.statementMs ?? STATEMENT_MS)}, false),
      set_config('lock_timeout', ${String(options.lockMs ?? LOCK_MS)}, false),
      set_config('idle_in_transaction_session_timeout', ${String(IDLE_IN_TRANSACTION_MS)}, false),
      -- compiling takes longer than it saves on statements of milliseconds
      set_config('jit', 'off', false)`
}

const watchSilence = (slot: Slot, ms: number): void => {
  slot.silence = setTimeout(() => {
    discard(slot)
    for (const reject of slot.unanswered) reject(lost())
  }, ms)
}

const stopWatching = (slot: Slot): void => {
  if (slot.silence) clearTimeout(slot.silence)
  slot.silence = null
}

const discard = (slot: Slot): void => {
  slot.alive = false
  // what the client still waits for is rejected; nobody is interested in it any more
  slot.client.end({ timeout: 0 }).catch(() => {})
}

export const openDatabase = (options: DatabaseOptions): Database => {
  const acquireMs = options.acquireMs ?? ACQUIRE_MS
  const silenceMs = (options.statementMs ?? STATEMENT_MS) + (options.silenceMs ?? SILENCE_MS)
  const free: Slot[] = []
  const waiters: Waiter[] = []
  const held = new Set<Slot>()
  let closing = false

  const acquire = async (): Promise<Slot> => {
    const slot = await waitForSlot()
    watchSilence(slot, silenceMs)
    if (slot.connected) return slot
    try {
      await setLimits(slot.connection, options)
      slot.connected = true
      return slot
    } catch (error) {
      slot.alive = false
      release(slot)
      throw isDatabaseFault(error) ? lost(error) : error
    }
  }

  const waitForSlot = (): Promise<Slot> => {
    if (closing) return Promise.reject(new AppError('shutting-down', 'the service is shutting down'))
    const slot = take()
    if (slot) return Promise.resolve(slot)
    if (waiters.length >= QUEUE_MAX) {
      return Promise.reject(new AppError('overloaded', 'too many requests wait for the database; try again shortly'))
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        waiters.splice(waiters.indexOf(waiter), 1)
        reject(new AppError('overloaded', `no database connection became free within ${acquireMs} ms`))
      }, acquireMs)
      const waiter: Waiter = { resolve, reject, timer }
      waiters.push(waiter)
    })
  }

  const take = (): Slot | null => {
    for (let slot = free.pop(); slot; slot = free.pop()) {
      if (slot.alive) {
        held.add(slot)
        return slot
      }
      discard(slot)
    }
    if (held.size >= options.size) return null
    const slot = openSlot(options)
    held.add(slot)
    return slot
  }

  const release = (slot: Slot): void => {
    held.delete(slot)
    stopWatching(slot)
    if (closing || !slot.alive) discard(slot)
    else free.push(slot)
    const waiter = closing ? undefined : waiters.shift()
    if (!waiter) return
    clearTimeout(waiter.timer)
    const next = take()
    if (next) waiter.resolve(next)
    else waiter.reject(new AppError('overloaded', 'no database connection is free'))
  }

  const translated = (slot: Slot, error: unknown): unknown => {
    if (error instanceof AppError) return error
    if (!isDatabaseFault(error)) return error
    // a fault of the connection leaves the slot in an unknown state: never reuse it
    slot.alive = false
    return lost(error)
  }

  const query = async <T>(work: (connection: Connection) => Promise<T>): Promise<T> => {
    const slot = await acquire()
    try {
      return await work(slot.connection)
    } catch (error) {
      throw translated(slot, error)
    } finally {
      release(slot)
    }
  }

  /** Runs `work` on a reserved connection, and hands the slot back whatever happened. */
  const reserved = async <T>(work: (slot: Slot, connection: TransactionConnection) => Promise<T>): Promise<T> => {
    const slot = await acquire()
    try {
      const connection = await reserve(slot)
      try {
        return await work(slot, connection)
      } finally {
        connection.release()
      }
    } catch (error) {
      throw translated(slot, error)
    } finally {
      release(slot)
    }
  }

  const once = <T>(work: (connection: TransactionConnection) => Promise<T>): Promise<T> =>
    reserved(async (slot, connection) => {
      const { sql } = connection
      try {
        await sql`begin`
        const result = await work(connection)
        await sql`commit`
        return result
      } catch (error) {
        if (slot.alive) {
          await sql`rollback`.catch(() => {
            slot.alive = false
          })
        }
        throw error
      }
    })

  const pipelined = <T>(steps: (sql: Sql) => { lock: Promise<unknown>; work: Promise<T> }): Promise<T> =>
    reserved(async (slot, { sql }) => {
      const begun = sql`begin`
      let started: { lock: Promise<unknown>; work: Promise<T> }
      try {
        started = steps(sql)
      } catch (error) {
        // the transaction is open and nobody will end it: this slot is not used again
        slot.alive = false
        begun.catch(() => {})
        throw error
      }
      const settled = await Promise.allSettled([begun, started.lock, started.work, sql`commit`])
      const failed = settled.find((step) => step.status === 'rejected')
      // an error before COMMIT makes the server answer it with ROLLBACK: nothing stays open
      if (failed) throw failed.reason
      return await started.work
    })

  const repeated = async <T>(attempt: () => Promise<T>): Promise<T> => {
    for (let tries = 1; ; tries++) {
      try {
        return await attempt()
      } catch (error) {
        if (tries >= TRANSACTION_TRIES || !isRetryable(error)) throw error
      }
    }
  }

  return {
    query,
    transaction: (work) => repeated(() => once(work)),
    lockThenWork: (steps) => repeated(() => pipelined(steps)),
    async close() {
      closing = true
      for (const waiter of waiters.splice(0)) {
        clearTimeout(waiter.timer)
        waiter.reject(new AppError('shutting-down', 'the service is shutting down'))
      }
      await Promise.all(free.splice(0).map((slot) => slot.client.end({ timeout: 1 }).catch(() => {})))
    },
  }
}
