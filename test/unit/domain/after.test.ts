import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { AFTER_WHEN, afterDecision, type Before } from '../../../src/domain/after.ts'
import { FINAL_STATUSES, isFinal, OPERATION_STATUSES, type OperationStatus } from '../../../src/domain/operation.ts'

const befores = (...statuses: OperationStatus[]): Before[] => statuses.map((status, n) => ({ id: `b${n}`, status }))
const OPEN = OPERATION_STATUSES.filter((status) => !isFinal(status))

describe('afterDecision', () => {
  test.each(OPEN)('one that is %s is waited for, whatever was asked', (status) => {
    for (const when of AFTER_WHEN) {
      expect(afterDecision(befores(status), when)).toEqual({ kind: 'wait', ended: [] })
      expect(afterDecision(befores('succeeded', status), when)).toEqual({ kind: 'wait', ended: befores('succeeded') })
    }
  })

  test.each(FINAL_STATUSES)('one that is %s is enough for who asked for `settled`', (status) => {
    expect(afterDecision(befores(status), 'settled')).toEqual({ kind: 'release', ended: befores(status) })
  })

  test.each(FINAL_STATUSES.filter((status) => status !== 'succeeded'))(
    'one that is %s cancels what was to start after its success, also before the others have ended',
    (status) => {
      const because = { id: 'b1', status }
      expect(afterDecision(befores('running', status, 'failed'), 'succeeded')).toEqual({ kind: 'cancel', because })
    },
  )

  test('all have succeeded: go', () => {
    const all = befores('succeeded', 'succeeded')
    for (const when of AFTER_WHEN) expect(afterDecision(all, when)).toEqual({ kind: 'release', ended: all })
  })

  test('a decision to go or to end stays the same, whatever the others come to', () => {
    const statuses = fc.array(fc.constantFrom(...OPERATION_STATUSES), { minLength: 1, maxLength: 6 })
    fc.assert(
      fc.property(statuses, statuses, fc.constantFrom(...AFTER_WHEN), (now, later, when) => {
        const decided = afterDecision(befores(...now), when).kind
        const then = now.map((status, n) => (isFinal(status) ? status : (later[n] ?? status)))
        if (decided !== 'wait') expect(afterDecision(befores(...then), when).kind).toBe(decided)
      }),
    )
  })
})
