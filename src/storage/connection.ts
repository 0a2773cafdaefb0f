/**
 * A slot of the pool in database.ts: one postgres.js client with a single connection, and what is known of its life. The
 * pool's header says why it is built like this.
 */
import { drizzle, type PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import postgres from 'postgres'
import { AppError } from '../domain/errors.ts'

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
  /** As text, without parameters and never prepared: several statements at once, and the frame of a transaction. */
  readonly script: (text: string) => Promise<void>
}

export interface Connection extends TransactionConnection {
  /** Drizzle on the same connection, for composed reads. It knows nothing of transactions and does not check liveness. */
  readonly db: PostgresJsDatabase
}

/** What a slot needs of the pool's options. */
export interface SlotOptions {
  url: string
  /** Shown in pg_stat_activity. */
  name: string
  /** false behind a PgBouncer in transaction mode older than 1.21. */
  prepare?: boolean
  statementMs?: number
  lockMs?: number
}

export const STATEMENT_MS = 30_000
const LOCK_MS = 10_000
const IDLE_IN_TRANSACTION_MS = 5_000
const CONNECT_SECONDS = 5

interface Life {
  alive: boolean
  /** Statements without an answer: rejected when the connection closes, also those that the driver never sent. */
  readonly unanswered: Set<(error: unknown) => void>
  /** While the slot is held: fires when nothing was answered for longer than any statement may take. */
  silence: NodeJS.Timeout | null
}

export interface Slot extends Life {
  readonly client: postgres.Sql
  readonly connection: Connection
  connected: boolean
}

export const lost = (cause?: unknown): AppError =>
  new AppError('database-unavailable', 'the connection to the database was lost', { cause })

export const openSlot = (options: SlotOptions): Slot => {
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

type Query = postgres.PendingQuery<postgres.Row[]>

const statementsOn = (
  life: Life,
  client: postgres.Sql,
  prepare: (query: Query) => Query = (query) => query,
): TransactionConnection => ({
  sql: <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) => {
    if (!life.alive) return Promise.reject(lost())
    const query = prepare(client(strings, ...(parameters as never[])))
    // execute() starts it now, awaited or not: that is what pipelines a transaction in one round trip
    return answered(life, query.execute() as unknown as Promise<T[]>)
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

/**
 * postgres.js sends a statement whose plan the server has lost (database-faults.ts) once more, behind all that left with it: behind
 * the COMMIT too, and then it stands alone, without the lock that was to come before it. Here it fails, and its transaction with
 * it. The driver notes the error in `retried` before it repeats, and passes over what is cancelled.
 */
const neverRepeated = (query: Query): Query =>
  Object.defineProperty(query, 'retried', {
    set(error: unknown) {
      const { reject } = Object.assign(this as { reject(error: unknown): void }, { cancelled: true })
      reject(error)
    },
  })

/** The statements of a transaction: on the slot's connection and on no other one. */
export const reserve = async (slot: Slot): Promise<TransactionConnection & { release(): void }> => {
  if (!slot.alive) throw lost()
  const reserved = await slot.client.reserve()
  return {
    ...statementsOn(slot, reserved, neverRepeated),
    release: () => {
      if (slot.alive) reserved.release()
    },
  }
}

/**
 * The limits of a session, set when it is connected. Behind a PgBouncer in transaction mode they may reach another session,
 * which has the same; there they belong to the role (deploy/database.md).
 */
export const setLimits = async ({ sql }: Connection, options: SlotOptions): Promise<void> => {
  await sql`
    select set_config('statement_timeout', ${String(options.statementMs ?? STATEMENT_MS)}, false),
      set_config('lock_timeout', ${String(options.lockMs ?? LOCK_MS)}, false),
      set_config('idle_in_transaction_session_timeout', ${String(IDLE_IN_TRANSACTION_MS)}, false),
      -- compiling takes longer than it saves on statements of milliseconds
      set_config('jit', 'off', false)`
}

export const watchSilence = (slot: Slot, ms: number): void => {
  slot.silence = setTimeout(() => giveUp(slot), ms)
}

/** Ends the connection now: what is unanswered is told so, and nothing reaches it any more. */
export const giveUp = (slot: Slot): void => {
  discard(slot)
  for (const reject of slot.unanswered) reject(lost())
}

export const stopWatching = (slot: Slot): void => {
  if (slot.silence) clearTimeout(slot.silence)
  slot.silence = null
}

export const discard = (slot: Slot): void => {
  slot.alive = false
  // what the client still waits for is rejected; nobody is interested in it any more
  slot.client.end({ timeout: 0 }).catch(() => {})
}
