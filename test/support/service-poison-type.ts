import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { defineOperationType } from '../../src/operation-types/code.ts'

/** What OPLEDGER_TYPES names to get the types below. */
export const poisonTypeFile = fileURLToPath(import.meta.url)

const MODES = ['ok', 'abort', 'exit', 'reject', 'throw_nul', 'exit_on_retry'] as const
const input = z.object({ mode: z.enum(MODES) })

/** Writes one row for each item into the test's own table `touched`, and dies of some of them in the ways a process can die. */
const poison = defineOperationType({
  name: 'poison',
  version: 1,
  effect: 'transactional',
  parallelism: 1,
  lease_seconds: 2,
  batch: { max_items: 20, max_ms: 500 },
  retry: { max_attempts: 3, base_ms: 20, max_ms: 50 },
  input,
  async runBatch(tx, items) {
    for (const item of items) {
      await tx`insert into touched (key) values (${item.key})`
      switch (item.input.mode) {
        case 'ok':
          break
        case 'abort':
          process.abort()
          break
        case 'exit':
          process.exit(3)
          break
        case 'reject':
          void Promise.reject(new Error('nobody catches this'))
          await new Promise(() => {})
          break
        case 'throw_nul':
          throw new Error(`bad \0 text \ud800 of ${item.key}`)
        case 'exit_on_retry':
          if (item.attempt > 1) process.exit(3)
          throw new Error('the first attempt fails')
      }
    }
    return undefined
  },
})

/** @public Read by the registry when OPLEDGER_TYPES names this file. */
export const types = [poison]
