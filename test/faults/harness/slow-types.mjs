/** A transactional type whose items take as long as they say. */
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { defineOperationType } from '../../../dist/operation-types/code.js'

export const types = [
  defineOperationType({
    name: 'slow-row',
    version: 1,
    effect: 'transactional',
    parallelism: 1,
    lease_seconds: 2,
    batch: { max_items: 1, max_ms: 500 },
    input: z.object({ ms: z.number() }),
    async runBatch(tx, items) {
      for (const item of items) {
        await tx`insert into fault_rows (item_key) values (${item.key})`
        const until = performance.now() + item.input.ms
        // the transaction must not be idle for longer than the database allows
        while (performance.now() < until) {
          await tx`select 1`
          await sleep(Math.min(500, Math.max(0, until - performance.now())))
        }
      }
      return undefined
    },
  }),
]
