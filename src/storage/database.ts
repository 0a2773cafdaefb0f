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
 * to the connection that replaces a lost one, each alone. A reserved one forgets them; here they are rejected. So no
 * statement of a dead transaction can land on a new connection: neither after a cut, nor after a lost COMMIT reply.
 * A statement of a transaction is never sent again by itself: what a pooler or a migration took the plan of fails, and the whole
 * is repeated on a new connection.
 * A COMMIT whose reply was lost surfaces as `database-unavailable`: the caller re-reads before it acts. So does what stays in
 * the way of a transaction (40001, 40P01, 55P03) after all its tries: it says nothing about the work, and is nobody's bug.
 *
 * Limits: `size` connections, QUEUE_MAX waiting callers, ACQUIRE_MS for a slot, STATEMENT_MS for a statement. The server
 * enforces the last one; when its answer is overdue by SILENCE_MS, the network went quiet and the slot is given up.
 */
import { AppError } from '../domain/errors.ts'
import {
  type Connection,
  discard,
  giveUp,
  lost,
  openSlot,
  reserve,
  type Slot,
  type SlotOptions,
  type Sql,
  STATEMENT_MS,
  setLimits,
  stopWatching,
  type TransactionConnection,
  watchSilence,
} from './connection.ts'
import { isDatabaseFault, isPlanLost, isRetryable } from './database-faults.ts'

export interface Database {
  /** Autocommit statements, not repeated: one of several may have committed. */
  query<T>(work: (connection: Connection) => Promise<T>): Promise<T>
  /**
   * BEGIN … COMMIT; any error rolls back. 40001, 40P01 and 55P03 repeat the whole work: TRANSACTION_TRIES times at most, and
   * none begins later than `statementMs` after the first, as somebody may be waiting for an answer.
   */
  transaction<T>(work: (connection: TransactionConnection) => Promise<T>): Promise<T>
  /**
   * Locks, then works: BEGIN, the lock, the work and COMMIT leave in one round trip, and the work sees a snapshot that
   * was taken after the lock was held (DESIGN, L4). `steps` starts its statements without awaiting between them; `also` are
   * statements after the work, which see what it did.
   */
  lockThenWork<T>(steps: (sql: Sql) => Steps<T>): Promise<T>
  /** For how long the first in the queue has been waiting for a connection; 0: nobody is. */
  queuedMs(): number
  close(): Promise<void>
}

export interface Steps<T> {
  lock: Promise<unknown>
  work: Promise<T>
  also?: Promise<unknown>
}

export interface DatabaseOptions extends SlotOptions {
  /** Connections at most. */
  size: number
  acquireMs?: number
  /** How much later than `statementMs` an answer may come. */
  silenceMs?: number
}

const ACQUIRE_MS = 5_000
const SILENCE_MS = 5_000
const QUEUE_MAX = 5_000
const TRANSACTION_TRIES = 8

interface Waiter {
  readonly resolve: (slot: Slot) => void
  readonly reject: (error: unknown) => void
  readonly timer: NodeJS.Timeout
  readonly since: number
}

/** Others were in the way, again and again. */
const hindered = (cause: unknown): AppError =>
  new AppError('database-unavailable', 'the database was too busy with the same rows', { cause })

export const openDatabase = (options: DatabaseOptions): Database => {
  const acquireMs = options.acquireMs ?? ACQUIRE_MS
  const statementMs = options.statementMs ?? STATEMENT_MS
  const silenceMs = statementMs + (options.silenceMs ?? SILENCE_MS)
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
      const waiter: Waiter = { resolve, reject, timer, since: performance.now() }
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
    // there may be more that it does not know any more: a new one knows what it has
    if (isPlanLost(error)) slot.alive = false
    if (error instanceof AppError || !isDatabaseFault(error)) return error
    // a fault of the connection leaves the slot in an unknown state: never reuse it
    slot.alive = false
    return lost(error)
  }

  const query = async <T>(work: (connection: Connection) => Promise<T>): Promise<T> => {
    const slot = await acquire()
    try {
      return await work(slot.connection)
    } catch (error) {
      const told = translated(slot, error)
      throw isRetryable(error) ? hindered(error) : told
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

  /**
   * Leaves with the statement behind it. As text: prepared, it could be what a pooler has lost. Where it fails and the connection
   * lives, that statement runs alone, as do those that left with it: the caller is told the same as after a lost COMMIT, and the
   * slot is given up, so that nothing follows.
   */
  const begin = (slot: Slot, { script }: TransactionConnection): Promise<void> => {
    const begun = script('begin').catch((error: unknown) => {
      giveUp(slot)
      throw lost(error)
    })
    begun.catch(() => {})
    return begun
  }

  const once = <T>(work: (connection: TransactionConnection) => Promise<T>): Promise<T> =>
    reserved(async (slot, connection) => {
      const { script } = connection
      const begun = begin(slot, connection)
      try {
        const result = await work(connection)
        await begun
        await script('commit')
        return result
      } catch (error) {
        if (slot.alive) {
          await script('rollback').catch(() => {
            slot.alive = false
          })
        }
        throw error
      }
    })

  const pipelined = <T>(steps: (sql: Sql) => Steps<T>): Promise<T> =>
    reserved(async (slot, connection) => {
      const begun = begin(slot, connection)
      let started: Steps<T>
      try {
        started = steps(connection.sql)
      } catch (error) {
        // the transaction is open and nobody will end it: this slot is not used again
        slot.alive = false
        throw error
      }
      const settled = await Promise.allSettled([
        begun,
        started.lock,
        started.work,
        started.also,
        connection.script('commit'),
      ])
      const failed = settled.find((step) => step.status === 'rejected')
      // an error before COMMIT makes the server answer it with ROLLBACK: nothing stays open
      if (failed) throw failed.reason
      return await started.work
    })

  const repeated = async <T>(attempt: () => Promise<T>): Promise<T> => {
    const until = performance.now() + statementMs
    for (let tries = 1; ; tries++) {
      try {
        return await attempt()
      } catch (error) {
        if (!isRetryable(error)) throw error
        if (tries >= TRANSACTION_TRIES || performance.now() > until) throw hindered(error)
      }
    }
  }

  return {
    query,
    transaction: (work) => repeated(() => once(work)),
    lockThenWork: (steps) => repeated(() => pipelined(steps)),
    queuedMs: () => (waiters[0] ? performance.now() - waiters[0].since : 0),
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
