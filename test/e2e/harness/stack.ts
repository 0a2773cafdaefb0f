import { startApi } from '../../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { type EffectServer, startEffectServer } from '../../support/effect-server.ts'
import { until } from '../../support/processes.ts'
import { writeTypeFile } from '../../support/service-types.ts'
import { openWorkerFleet } from '../../support/worker-process.ts'
import { E2E_TYPES } from './types.ts'

/** The machine may be busy with other things. */
const EVENTUALLY_MS = 120_000

export interface Operation {
  id: string
  status: string
  counts: Record<'total' | 'applied' | 'skipped' | 'failed' | 'uncertain' | 'unprocessed', number>
  cancel: { requested_at: string | null; requested_by: string | null; reason: string | null }
  replay_of: string | null
  approval: { decision: string | null; decided_by: string | null } | null
}

/** What the outside world does with the item: a mode of test/support/effect-server.ts. */
export interface E2eItem {
  key: string
  mode?: string
  delayMs?: number
}

/** A real service: PostgreSQL, an api, a worker and a provider. Other clients than the browser speak through `call`. */
export interface Stack {
  url: string
  database: TestDatabase
  provider: EffectServer
  /** @throws when it is refused */
  call<T>(method: 'GET' | 'POST', path: string, body?: unknown, caller?: string): Promise<T>
  submit(type: string, items: readonly E2eItem[], reason: string): Promise<Operation>
  read(id: string): Promise<Operation>
  untilStatus(id: string, ...statuses: string[]): Promise<Operation>
  close(): Promise<void>
}

/** @param auth `off`: callers are who they say they are, `sam` where none is named */
export const openStack = async ({ auth = 'off' }: { auth?: 'off' | 'keys' } = {}): Promise<Stack> => {
  const database = await createTestDatabase()
  const provider = await startEffectServer()
  const types = writeTypeFile(E2E_TYPES)
  const env = { EFFECTS_URL: provider.url }
  const processes = { databaseUrl: database.url, typeFiles: [types.file] }
  const fleet = openWorkerFleet({ ...processes, env })
  const [api] = await Promise.all([startApi({ ...processes, env: { ...env, AUTH: auth } }), fleet.start()])

  const call = async <T>(method: 'GET' | 'POST', path: string, body?: unknown, caller = 'sam'): Promise<T> => {
    const response = await fetch(`${api.url}${path}`, {
      method,
      headers: { 'x-principal': caller, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`)
    return (await response.json()) as T
  }
  const read = (id: string): Promise<Operation> => call<Operation>('GET', `/operations/${id}`)
  return {
    url: api.url,
    database,
    provider,
    call,
    read,
    submit: (type, items, reason) =>
      call<Operation>('POST', '/operations', {
        type,
        reason,
        items: items.map(({ key, mode = 'ok', delayMs = 0 }) => ({ key, input: { mode, delay_ms: delayMs } })),
      }),
    async untilStatus(id, ...statuses) {
      let operation = await read(id)
      await until(
        `${id} is ${statuses.join(' or ')}`,
        async () => {
          operation = await read(id)
          return statuses.includes(operation.status)
        },
        EVENTUALLY_MS,
      )
      return operation
    },
    async close() {
      await Promise.all([fleet.stop(), api.kill()])
      await provider.close()
      types.remove()
      await database.drop()
    },
  }
}

/** `count` items named like people. */
export const people = (count: number, change: Omit<E2eItem, 'key'> = {}): E2eItem[] =>
  Array.from({ length: count }, (_, index) => ({ key: `user-${String(index + 1).padStart(4, '0')}`, ...change }))
