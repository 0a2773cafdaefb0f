/** What the traps of several faults have in common. */
import type { ProbeSubject } from '../../../src/probe.ts'
import { until } from '../../support/processes.ts'
import type { Hit } from './probes.ts'
import type { Stack } from './stack.ts'

/** Whether a process stands at its point with the operation of this key, whose client may not know it yet. */
export const ofKey =
  ({ sql }: Pick<Stack, 'sql'>, key: string) =>
  async ({ idempotencyKey, operationId }: ProbeSubject): Promise<boolean> => {
    if (idempotencyKey !== undefined) return idempotencyKey === key
    const rows = await sql`select from operations where idempotency_key = ${key} and id = ${operationId ?? null}::uuid`
    return rows.length > 0
  }

/** Resolves when the provider has done this effect and its answer has been read by the process that stands at the point. */
export const onceDone =
  ({ effects }: Pick<Stack, 'effects'>, effectKey: string) =>
  async ({ member }: Hit): Promise<void> => {
    await until(`the provider has done ${effectKey}`, async () => (await effects.log())[effectKey]?.applied === 1)
    await member.ask({}) // the answer came first, so it was read first
  }

/** A promise, and who resolves it. */
export const makeGate = (): { opened: Promise<void>; open: () => void } => {
  let open: () => void = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}
