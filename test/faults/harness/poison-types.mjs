/** Types whose items end the process that works on them, in every way in which a process can end. */
import { setFlagsFromString } from 'node:v8'
import { z } from 'zod'
import { defineOperationType } from '../../../dist/operation-types/code.js'

const exhaustMemory = () => {
  setFlagsFromString('--max-old-space-size=40')
  const kept = []
  for (;;) kept.push(new Array(100_000).fill(kept.length))
}

const die = async (mode) => {
  switch (mode) {
    case 'exit':
      return process.exit(3)
    case 'segv':
      process.kill(process.pid, 'SIGSEGV')
      return new Promise(() => {})
    case 'memory':
      return exhaustMemory()
    case 'loop':
      for (;;);
    case 'reject':
      Promise.reject(new Error('nobody catches this'))
      return new Promise(() => {})
    case 'throw':
      throw new Error('bad \0 text \ud800')
  }
}

const input = z.object({ mode: z.enum(['ok', 'exit', 'segv', 'memory', 'loop', 'reject', 'throw']) })

export const types = [
  defineOperationType({
    name: 'poison-row',
    version: 1,
    effect: 'transactional',
    parallelism: 1,
    lease_seconds: 2,
    batch: { max_items: 20, max_ms: 500 },
    retry: { max_attempts: 3, base_ms: 20, max_ms: 50 },
    input,
    async runBatch(tx, items) {
      for (const item of items) {
        await tx`insert into fault_rows (item_key) values (${item.key})`
        await die(item.input.mode)
      }
      return undefined
    },
  }),
  defineOperationType({
    name: 'poison-call',
    version: 1,
    effect: 'external',
    effect_key: '{item.key}',
    parallelism: 1,
    concurrency: 2,
    lease_seconds: 2,
    timeout_ms: 800,
    retry: { max_attempts: 3, base_ms: 20, max_ms: 50 },
    input,
    async send({ effectKey, input: { mode } }) {
      await fetch(`${process.env.FAULTS_EFFECTS_URL}/grants`, {
        method: 'POST',
        headers: { 'idempotency-key': effectKey, 'content-type': 'application/json' },
        body: '{}',
      })
      await die(mode)
      return { state: 'applied' }
    },
  }),
]
