/**
 * Clients at work while something is broken, and the account afterwards: every operation that was accepted is there and final,
 * every effect was made once, every row was written once, and no process ended by itself.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { migrate } from '../../../src/storage/migrate.ts'
import type { Answer, Operation } from './client.ts'
import { isFinal, NoAnswer } from './client.ts'
import { openPostgresServer, type PostgresServer, type PostgresServerOptions } from './postgres-server.ts'
import { openStack, type Stack, type StackOptions } from './stack.ts'

export interface LoadOptions {
  /** Of keys: different for each load of a database. */
  name: string
  /** Clients that post one after the other. */
  clients?: number
  items?: number
  /** Between two posts of a client. */
  everyMs?: number
  /** How long one effect takes. */
  delayMs?: number
  types?: readonly string[]
}

export interface Load {
  /** Keys of the items by operation id: what was answered with 202. */
  readonly accepted: ReadonlyMap<string, { type: string; keys: readonly string[] }>
  /** How often each status was answered; 0 stands for no answer. */
  readonly answers: ReadonlyMap<number, number>
  /** Answers that were neither 202 nor a 503 as a problem document. */
  readonly odd: readonly Answer[]
  /** How many 202 there were, from now on until `count` more have come. */
  more(count: number): Promise<void>
  /** Ends it; what was not accepted yet is given up. */
  stop(): Promise<void>
}

const MORE_MS = 60_000
const POLL_MS = 100
const PAUSE_MS = 100
const TYPES = ['fault-asked', 'fault-row']

export const startLoad = (stack: Stack, options: LoadOptions): Load => {
  const { name, clients = 2, items = 6, everyMs = 50, delayMs = 0, types = TYPES } = options
  const accepted = new Map<string, { type: string; keys: string[] }>()
  const answers = new Map<number, number>()
  const odd: Answer[] = []
  let going = true

  const count = (status: number): void => void answers.set(status, (answers.get(status) ?? 0) + 1)
  const isProblem = (answer: Answer): boolean =>
    String(answer.headers['content-type']).startsWith('application/problem+json')

  const post = async (key: string, type: string): Promise<void> => {
    const keys = Array.from({ length: items }, (_, n) => `${key}-${n}`)
    const input = type === 'fault-row' ? {} : { mode: 'ok', delay_ms: delayMs }
    while (going) {
      const answer = await stack.client
        .trySubmit({ type, key, items: keys.map((item) => ({ key: item, input })) })
        .catch((error: unknown) => {
          if (error instanceof NoAnswer) return null
          throw error
        })
      count(answer?.status ?? 0)
      if (answer?.status === 202) {
        accepted.set(String(answer.body.id), { type, keys })
        return
      }
      if (answer && !(answer.status === 503 && isProblem(answer))) odd.push(answer)
      await sleep(PAUSE_MS)
    }
  }
  const client = async (number: number): Promise<void> => {
    for (let n = 0; going; n++) {
      await post(`${name}-${number}-${n}`, types[n % types.length] as string)
      await sleep(everyMs)
    }
  }
  const ended = Promise.all(Array.from({ length: clients }, (_, number) => client(number)))
  ended.catch(() => {}) // told by stop()

  return {
    accepted,
    answers,
    odd,
    async more(wanted) {
      const before = accepted.size
      const giveUpAt = performance.now() + MORE_MS
      while (accepted.size < before + wanted) {
        if (performance.now() > giveUpAt) throw new Error(`${accepted.size - before} of ${wanted} were accepted`)
        await sleep(POLL_MS)
      }
    },
    async stop() {
      going = false
      await ended
    },
  }
}

/** Waits until each accepted operation is final, and answers with their last states. */
export const awaitFinal = async (stack: Stack, ids: Iterable<string>, withinMs: number): Promise<Operation[]> => {
  const giveUpAt = performance.now() + withinMs
  const done: Operation[] = []
  for (const id of ids) {
    for (;;) {
      const operation = await stack.client.get(id)
      if (isFinal(operation)) {
        done.push(operation)
        break
      }
      if (performance.now() > giveUpAt) throw new Error(`not final: ${JSON.stringify(operation)}`)
      await sleep(POLL_MS)
    }
  }
  return done
}

/** The account of loads whose effects all succeed. */
export const expectWhole = async (stack: Stack, loads: readonly Load[], withinMs: number): Promise<void> => {
  const all = loads.flatMap(({ accepted }) => [...accepted])
  expect(loads.flatMap(({ odd }) => odd.map(({ status, body }) => ({ status, body })))).toEqual([])
  const operations = await awaitFinal(
    stack,
    all.map(([id]) => id),
    withinMs,
  )
  expect(operations.filter(({ status }) => status !== 'succeeded')).toEqual([])
  const effects = await stack.effects.idleLog()
  const keysOf = (type: string): string[] => all.filter(([, one]) => one.type === type).flatMap(([, { keys }]) => keys)
  const external = all.filter(([, { type }]) => type !== 'fault-row').flatMap(([, { keys }]) => keys)
  expect(external.filter((key) => effects[key]?.applied !== 1)).toEqual([])
  const rows = new Map(
    (
      await stack.sql<
        { key: string; n: number }[]
      >`select item_key as key, count(*)::int as n from fault_rows group by 1`
    ).map(({ key, n }) => [key, n]),
  )
  expect(keysOf('fault-row').filter((key) => rows.get(key) !== 1)).toEqual([])
  expect(await unequalCounters(stack)).toEqual([])
}

/** Shards whose counters are not what the ledger says. */
const unequalCounters = (stack: Stack): Promise<object[]> => stack.sql`
  with last as (
    select distinct on (operation_id, ord) operation_id, ord, state from ledger_entries where state is not null
    order by operation_id, ord, seq desc),
  counted as (
    select s.operation_id, s.shard, s.applied, s.skipped, s.failed, s.uncertain,
      count(*) filter (where l.state = 'applied') as l_applied, count(*) filter (where l.state = 'skipped') as l_skipped,
      count(*) filter (where l.state = 'failed') as l_failed, count(*) filter (where l.state = 'uncertain') as l_uncertain
    from operation_shards s left join last l on l.operation_id = s.operation_id and l.ord >= s.from_ord and l.ord < s.to_ord
    group by s.tenant_id, s.operation_id, s.shard)
  select * from counted
  where (applied, skipped, failed, uncertain) <> (l_applied, l_skipped, l_failed, l_uncertain)`

/** The service on a server of the test's own, for the duration of `body`. */
export const withStackOn = async (
  server: Pick<PostgresServer, 'url' | 'query'>,
  options: Omit<StackOptions, 'databaseUrl'>,
  body: (stack: Stack) => Promise<void>,
): Promise<void> => {
  await migrate({ url: server.url })
  await server.query('create table if not exists fault_rows (item_key text not null)')
  const stack = await openStack({ ...options, databaseUrl: server.url })
  try {
    await body(stack)
  } finally {
    await stack.close()
  }
}

/** A server for the duration of `body`. */
export const withServer = async (
  options: PostgresServerOptions,
  body: (server: PostgresServer) => Promise<void>,
): Promise<void> => {
  const server = await openPostgresServer(options)
  try {
    await body(server)
  } finally {
    await server.remove()
  }
}

/** No process may end by itself: `exits` are those that the test did not ask for. */
export const expectNoExits = (stack: Stack): void => {
  expect([...stack.apis, ...stack.workers].flatMap(({ exits }) => exits)).toEqual([])
}
