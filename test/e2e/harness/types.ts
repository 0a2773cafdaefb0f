import { grantLookup, grantType } from '../../support/service-types.ts'

/** Long enough for any machine: what is uncertain here was broken off on purpose, and never only late. */
const CALL_MS = 20_000
const PATIENT = { lease_seconds: 60, stall_ms: 120_000, retry: { max_attempts: 1, base_ms: 50, max_ms: 100 } }
const REQUEST = {
  url: '{env.EFFECTS_URL}/grants',
  headers: { 'Idempotency-Key': '{effect_key}' },
  body: { mode: '{input.mode}', delay_ms: '{input.delay_ms}' },
  timeout_ms: CALL_MS,
}

/** `grant-role` changes permissions, so that a replay of it needs a second person; a notice cannot be called back. */
export const E2E_TYPES = [
  grantType(
    'grant-role',
    {
      version: 3,
      description: 'Grants a role to users in the directory service',
      owner: 'identity-team',
      risk: 'high',
      touches: ['permission'],
      effect_key: 'grant-role:{operation.id}:{item.key}',
      ...PATIENT,
    },
    {
      request: REQUEST,
      lookup: { ...grantLookup(0), timeout_ms: CALL_MS },
      on_absent: 'case',
      compensate: { method: 'DELETE', url: '{env.EFFECTS_URL}/grants/{effect_key}', timeout_ms: CALL_MS },
    },
  ),
  grantType(
    'send-notice',
    {
      description: 'Tells a customer by mail',
      owner: 'support',
      effect_key: 'notice:{operation.id}:{item.key}',
      ...PATIENT,
    },
    { request: REQUEST, no_compensation: 'a message that was sent cannot be called back' },
  ),
]
