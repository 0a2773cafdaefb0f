/** A transactional type that cannot hide a repeat: it adds a row, and nothing in the table forbids the same row again. */
import { z } from 'zod'
import { defineOperationType } from '../../src/operation-types/code.ts'

export const types = [
  defineOperationType({
    name: 'fault-row',
    version: 1,
    effect: 'transactional',
    input: z.object({}),
    batch: { max_items: 100, max_ms: 500 },
    parallelism: 4,
    lease_seconds: 3,
    retry: { max_attempts: 8, base_ms: 50, max_ms: 400 },
    runBatch: async (tx, items) => {
      await tx`
        insert into fault_rows (item_key)
        select key from jsonb_array_elements_text(${JSON.stringify(items.map((item) => item.key))}::text::jsonb) as key`
      return undefined
    },
  }),
]
