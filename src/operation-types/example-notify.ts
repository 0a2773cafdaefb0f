/**
 * An example of an external type, there when no type file is named. It "sends" to a provider that exists inside this
 * process only: nothing leaves the machine. `mode` chooses the provider's answer.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { defineOperationType } from './code.ts'

const DELAY_MS = { default: 20, max: 5_000 }

export const exampleNotify = defineOperationType({
  name: 'example-notify',
  version: 1,
  description: 'Example: sends a message to a simulated provider; nothing leaves the machine',
  effect: 'external',
  risk: 'low',
  touches: ['external_send'],
  no_compensation: 'a message that was sent cannot be called back',
  approval: 'none',
  idempotency_key: 'optional',
  timeout_ms: 10_000,
  input: z.object({
    to: z.string().min(1).max(200),
    text: z.string().max(2_000).optional(),
    mode: z.enum(['ok', 'reject', 'busy', 'uncertain']).optional(),
    delay_ms: z.int().min(0).max(DELAY_MS.max).optional(),
  }),
  send: async ({ effectKey, input }, { signal }) => {
    await delay(input.delay_ms ?? DELAY_MS.default, undefined, { signal })
    switch (input.mode ?? 'ok') {
      case 'ok':
        return { state: 'applied', effectRef: `message:${effectKey}` }
      case 'reject':
        return { state: 'failed', failureClass: 'validation_rejected', reasonCode: 'UNKNOWN_RECIPIENT' }
      case 'busy':
        return {
          outcome: { state: 'failed', failureClass: 'transient', reasonCode: 'PROVIDER_BUSY' },
          downstreamError: true,
        }
      case 'uncertain':
        return { outcome: { state: 'uncertain', reasonCode: 'TIMEOUT' }, downstreamError: true }
    }
  },
})
