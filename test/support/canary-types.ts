import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { defineOperationType } from '../../src/operation-types/code.ts'

/** What OPLEDGER_TYPES names to get the types below. */
export const canaryTypeFile = fileURLToPath(import.meta.url)

const input = z.object({ user: z.string().min(3), how: z.enum(['throw', 'say', 'sql']) })

/** Handlers that say what they were given, which they should not: its user is masked. */
export const tellTale = defineOperationType({
  name: 'tell-tale',
  version: 1,
  effect: 'external',
  idempotency_key: 'optional',
  lease_seconds: 2,
  timeout_ms: 900,
  retry: { max_attempts: 1, base_ms: 1, max_ms: 1 },
  mask: ['/user'],
  input,
  send: async ({ input: { user, how } }) => {
    if (how === 'throw') throw new Error(`cannot take ${user}`)
    return { state: 'failed', failureClass: 'conflict', reasonCode: `NO_${user}`, message: `there is no ${user}` }
  },
})

/** As the database says it, when it is given what it cannot take. */
export const tellTaleImport = defineOperationType({
  name: 'tell-tale-import',
  version: 1,
  effect: 'transactional',
  idempotency_key: 'optional',
  lease_seconds: 3,
  retry: { max_attempts: 1, base_ms: 1, max_ms: 1 },
  mask: ['/user'],
  input,
  runBatch: async (tx, [item]) => {
    const { user, how } = item?.input ?? { user: '', how: 'say' }
    if (how === 'sql') await tx`select ${user}::text::int`
    if (how === 'throw') throw new Error(`cannot import ${user}`)
    return undefined
  },
})

export const tellTaleReport = defineOperationType({
  name: 'tell-tale-report',
  version: 1,
  effect: 'artifact',
  lease_seconds: 2,
  timeout_ms: 900,
  retry: { max_attempts: 1, base_ms: 1, max_ms: 1 },
  mask: ['/user'],
  input,
  plan: async ({ user, how }) => [{ key: 'only', input: { user, how } }],
  async *writeChunk({ input: chunk }) {
    const { user, how } = input.parse(chunk)
    if (how === 'throw') throw new Error(`cannot write of ${user}`)
    yield 'a line\n'
  },
  file: () => ({ name: 'report.txt', contentType: 'text/plain' }),
})

/** @public Read by the registry when OPLEDGER_TYPES names this file. */
export const types = [tellTale, tellTaleImport, tellTaleReport]
