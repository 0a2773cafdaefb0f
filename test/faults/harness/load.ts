/** Clients at work while something is broken, and the account of it afterwards; servers and processes of a test's own. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { migrate } from '../../../src/storage/migrate.ts'
import { type Account, openAccount } from './account.ts'
import { type Answer, NoAnswer } from './client.ts'
import { settle } from './phase-two.ts'
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
  readonly account: Account
  /** Ids of the operations that were answered with 202. */
  readonly accepted: ReadonlySet<string>
  /** How often each status was answered; 0 stands for no answer. */
  readonly answers: ReadonlyMap<number, number>
  /** Answers that were neither 202, nor 503 as a problem document. */
  readonly odd: readonly Pick<Answer, 'status' | 'body'>[]
  /** Resolves when `count` more were accepted. */
  more(count: number): Promise<void>
  /** Ends it; what was not accepted yet is given up. */
  stop(): Promise<void>
  /** The account, when nothing is broken any more: all succeeded, I1 to I8 hold, and no answer was odd. */
  expectWhole(): Promise<void>
}

const MORE_MS = 120_000
const POLL_MS = 100
const PAUSE_MS = 100
const TYPES = ['fault-asked', 'fault-row']

export const startLoad = (stack: Stack, options: LoadOptions): Load => {
  const { name, clients = 2, items = 6, everyMs = 50, delayMs = 0, types = TYPES } = options
  const account = openAccount(stack)
  const accepted = new Set<string>()
  const answers = new Map<number, number>()
  const odd: Pick<Answer, 'status' | 'body'>[] = []
  let going = true

  const count = (status: number): void => void answers.set(status, (answers.get(status) ?? 0) + 1)
  const isProblem = (answer: Answer): boolean =>
    String(answer.headers['content-type']).startsWith('application/problem+json')

  const post = async (key: string, type: string): Promise<void> => {
    const input = type === 'fault-row' ? {} : { mode: 'ok', delay_ms: delayMs }
    const submit = { type, key, items: Array.from({ length: items }, (_, n) => ({ key: `${key}-${n}`, input })) }
    while (going) {
      const answer = await account.client.trySubmit(submit).catch((error: unknown) => {
        if (error instanceof NoAnswer) return null
        throw error
      })
      count(answer?.status ?? 0)
      if (answer?.status === 202) {
        accepted.add(String(answer.body.id))
        return
      }
      if (answer && !(answer.status === 503 && isProblem(answer)))
        odd.push({ status: answer.status, body: answer.body })
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
    account,
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
    async expectWhole() {
      const operations = await settle(stack, account.client, [...accepted])
      expect(operations.filter(({ status }) => status !== 'succeeded')).toEqual([])
      expect(odd).toEqual([])
      await account.end()
      await account.close()
    },
  }
}

/** The service on a server of the test's own, for the duration of `body`. */
export const withStackOn = async <Result>(
  server: Pick<PostgresServer, 'url' | 'query'>,
  options: Omit<StackOptions, 'databaseUrl'>,
  body: (stack: Stack) => Promise<Result>,
): Promise<Result> => {
  await migrate({ url: server.url })
  await server.query('create table if not exists fault_rows (item_key text not null)')
  const stack = await openStack({ ...options, databaseUrl: server.url })
  try {
    return await body(stack)
  } finally {
    await stack.close()
  }
}

/** A server for the duration of `body`. */
export const withServer = async <Result>(
  options: PostgresServerOptions,
  body: (server: PostgresServer) => Promise<Result>,
): Promise<Result> => {
  const server = await openPostgresServer(options)
  try {
    return await body(server)
  } finally {
    await server.remove()
  }
}

/** For tests that end no process themselves. */
export const expectNoExits = (stack: Stack): void => {
  expect([...stack.apis, ...stack.workers].flatMap(({ exits }) => exits)).toEqual([])
}
