/** What F17 and F18 hold a cancel to. */
import { expect } from 'vitest'
import type { Answer, Operation } from './client.ts'
import type { Stack } from './stack.ts'

interface Receipt {
  requested_at: string | null
  acknowledged_at: string | null
}

const receiptOf = (body: unknown): Receipt => (body as { cancel: Receipt }).cancel

/** The answer to a cancel against what became of the operation: nothing that it said was untrue, and nothing was forgotten. */
export const expectTruthful = (answer: Answer, later: Operation): void => {
  if (answer.status === 409) {
    expect(answer.body).toMatchObject({ code: 'operation-already-final', operation_status: later.status })
    return
  }
  expect([200, 202]).toContain(answer.status)
  const said = String(answer.body.status)
  if (answer.status === 200 || said === 'cancelled' || said === 'completed_after_cancel')
    expect(later.status).toBe(said)
  else expect(['cancel_requested', 'reconciliation_required']).toContain(said)
  expect(['cancelled', 'completed_after_cancel']).toContain(later.status)
  const [then, now] = [receiptOf(answer.body), receiptOf(later)]
  expect(now.requested_at).toBe(then.requested_at)
  if (then.acknowledged_at !== null) expect(now.acknowledged_at).toBe(then.acknowledged_at)
}

/** One cancel stands in the events, and one final state, the last one. */
export const expectOneEnd = async ({ sql }: Pick<Stack, 'sql'>, key: string, cancels = 1): Promise<void> => {
  const events = await sql<{ kind: string; final: boolean }[]>`
    select v.kind, o.completed_at is not null as final
    from operations o join operation_events v on v.tenant_id = o.tenant_id and v.operation_id = o.id
    where o.idempotency_key = ${key} order by v.version`
  const count = (kind: string): number => events.filter((event) => event.kind === kind).length
  expect({ cancels: count('cancel_requested'), settled: count('settled') }).toEqual({ cancels, settled: 1 })
  // a replay of it is noted afterwards, and changes nothing
  expect(events.filter(({ kind }) => kind !== 'replayed').at(-1)).toEqual({ kind: 'settled', final: true })
}
