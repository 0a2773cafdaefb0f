import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type { Json } from '../../src/domain/operation-type.ts'

type Members = { [member: string]: Json }

/**
 * The type "grant" against the effect server, as an entry of a type file: the shortest lease that a type may have. An item's
 * input chooses what the server does (`mode`, `delay_ms`) and, if it likes, the effect key (`target`). Rates stop nothing: they are
 * of all tests of a file, and would pause the replay of one for the failures of another.
 */
export const grantType = (name: string, change: Members = {}, http: Members = {}): Members => ({
  name,
  version: 1,
  effect: 'external',
  effect_key: `${name}:{item.key}`,
  idempotency_key: 'optional',
  parallelism: 1,
  concurrency: 4,
  lease_seconds: 2,
  stall_ms: 10_000,
  retry: { max_attempts: 3, base_ms: 50, max_ms: 100 },
  stop_if: ['ambiguous_effect_targets > 0'],
  http: {
    request: {
      url: '{env.EFFECTS_URL}/grants',
      headers: { 'Idempotency-Key': '{effect_key}' },
      body: { mode: '{input.mode}', delay_ms: '{input.delay_ms}' },
      timeout_ms: 900,
    },
    outcome: [
      { status: [200, 201, 204], state: 'applied', ref: '/id' },
      { status: [208], state: 'skipped', reason_code: 'ALREADY_AT_TARGET' },
      { status: [400, 422], state: 'failed', class: 'validation_rejected', reason_code: '/code' },
      { status: [409], state: 'failed', class: 'conflict' },
      { status: [401, 403], state: 'failed', class: 'policy_denied' },
      { status: [429, 503], state: 'failed', class: 'transient' },
    ],
    ...http,
  },
  ...change,
})

/** How the effect server is asked what became of an effect. */
export const grantLookup = (afterMs: number): Members => ({
  url: '{env.EFFECTS_URL}/grants/{effect_key}',
  after_ms: afterMs,
  timeout_ms: 900,
  outcome: [
    { status: [200], state: 'applied', ref: '/id' },
    { status: [404], state: 'absent' },
  ],
})

/** A type file in a directory of its own. */
export const writeTypeFile = (types: readonly Members[]): { file: string; remove(): void } => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-types-'))
  const file = path.join(directory, 'types.json')
  writeFileSync(file, JSON.stringify({ types }))
  return { file, remove: () => rmSync(directory, { recursive: true, force: true }) }
}
