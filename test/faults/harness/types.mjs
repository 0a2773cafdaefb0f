/**
 * Transactional types of the suite, for the build. `fault-row` cannot hide a repeat: it adds rows to `fault_rows`, and nothing
 * in that table forbids the same row again.
 */
import { z } from 'zod'
import { defineOperationType } from '../../../dist/operation-types/code.js'

export const types = [
  defineOperationType({
    name: 'fault-row',
    version: 1,
    effect: 'transactional',
    input: z.object({}),
    batch: { max_items: 100, max_ms: 500 },
    parallelism: 4,
    lease_seconds: 2,
    retry: { max_attempts: 8, base_ms: 50, max_ms: 400 },
    runBatch: async (tx, items) => {
      await tx`
        insert into fault_rows (item_key)
        select key from jsonb_array_elements_text(${JSON.stringify(items.map((item) => item.key))}::text::jsonb) as key`
      return undefined
    },
  }),
]
