/** The types of the benches that need code, for the build in dist/. */
import { Pool } from 'undici'
import { z } from 'zod'
import { defineOperationType } from '../../dist/operation-types/code.js'

const CONNECTIONS = 128
const provider = new Pool(process.env.BENCH_PROVIDER_URL ?? 'http://127.0.0.1:9', { connections: CONNECTIONS })

const literal = (values) => `{${values.join(',')}}`

export const types = [
  defineOperationType({
    name: 'bench-update',
    version: 1,
    description: 'A real change an item: one row of a table',
    effect: 'transactional',
    idempotency_key: 'optional',
    batch: { max_items: 500, max_ms: 1_000 },
    parallelism: 4,
    input: z.object({ target: z.int() }),
    runBatch: async (tx, items) => {
      await tx`update targets set value = value + 1 where id = any(${literal(items.map(({ input }) => input.target))}::int[])`
      return undefined
    },
  }),
  defineOperationType({
    name: 'bench-paced',
    version: 1,
    description: 'Batches of 100 that take about 50 ms, and leave behind when each effect began',
    effect: 'transactional',
    idempotency_key: 'optional',
    batch: { max_items: 100, max_ms: 1_000 },
    parallelism: 2,
    input: z.object({}),
    runBatch: async (tx, items, run) => {
      const startedAt = performance.now()
      await tx`
        insert into seen (operation_id, at)
        select ${run.operationId}, clock_timestamp() from generate_series(1, ${items.length}::int)`
      await tx`select pg_sleep(0.05)`
      await tx`insert into batches (took_ms) values (${String(performance.now() - startedAt)}::text::float8)`
      return undefined
    },
  }),
  defineOperationType({
    name: 'bench-stamp',
    version: 1,
    description: 'One call an item, which carries when it was sent',
    effect: 'external',
    idempotency_key: 'optional',
    parallelism: 4,
    concurrency: 16,
    input: z.object({}),
    send: async ({ operationId }, { mayStart }) => {
      if (!mayStart()) return { state: 'failed', failureClass: 'transient', reasonCode: 'STOPPED' }
      const headers = { 'idempotency-key': operationId, 'x-sent-at': String(Date.now()) }
      const { body, statusCode } = await provider.request({ method: 'POST', path: '/effects', headers })
      await body.dump()
      return statusCode === 201 ? { state: 'applied' } : { state: 'uncertain', reasonCode: 'ODD_ANSWER' }
    },
  }),
]
