import { describe, expect, test } from 'vitest'
import { compensationKey } from '../../../src/domain/compensation.ts'
import { formatId } from '../../../src/domain/ids.ts'
import {
  type ChainFacts,
  isBoundToChain,
  type KeptBecause,
  keptBecause,
  keptDays,
  PURGE_STAGES,
} from '../../../src/domain/retention.ts'

const DAY_MS = 86_400_000
const POLICY = { itemsDays: 30, ledgerDays: 90 }
const OLD: ChainFacts = {
  open: 0,
  sinceChangeMs: 1_000 * DAY_MS,
  unexplained: 0,
  openCases: false,
  activeDeadLetters: false,
  callbacksPending: false,
  bulkPending: false,
  purging: false,
}

describe('a chain', () => {
  test.each(PURGE_STAGES)('that is old, over and explained goes: its %s', (stage) => {
    expect(keptBecause(stage, OLD, POLICY)).toEqual([])
  })

  test.each<[KeptBecause, Partial<ChainFacts>]>([
    ['open', { open: 1 }],
    ['unexplained', { unexplained: 1 }],
    ['case-open', { openCases: true }],
    ['dead-letter-open', { activeDeadLetters: true }],
    ['callback-pending', { callbacksPending: true }],
    ['bulk-action-pending', { bulkPending: true }],
    ['purging', { purging: true }],
  ])('is kept, however old, while it is %s', (reason, facts) => {
    for (const stage of PURGE_STAGES) expect(keptBecause(stage, { ...OLD, ...facts }, POLICY)).toEqual([reason])
  })

  test('goes with its last millisecond, and not before', () => {
    for (const stage of PURGE_STAGES) {
      const kept = keptDays(stage, POLICY) * DAY_MS
      expect(keptBecause(stage, { ...OLD, sinceChangeMs: kept - 1 }, POLICY)).toEqual(['too-young'])
      expect(keptBecause(stage, { ...OLD, sinceChangeMs: kept }, POLICY)).toEqual([])
    }
    expect(keptDays('items', POLICY)).toBeLessThan(keptDays('ledger', POLICY))
  })

  test('tells every reason that it is kept for', () => {
    expect(keptBecause('ledger', { ...OLD, open: 2, sinceChangeMs: 0, openCases: true }, POLICY)).toEqual([
      'open',
      'too-young',
      'case-open',
    ])
  })
})

describe('an effect key', () => {
  const root = '0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d5e'
  const replay = '0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d5f'
  const other = '0198c0de-7f3a-7c0d-9a5e-4b1f2a3c4d60'
  const chain = { type: 'grant', operationIds: [root, replay] }
  const key = `grant:${formatId('op', root)}:ada`

  test.each([
    ['by default', key],
    ['with a step', `${key}/reserve`],
    ['of the replay of an artifact', `grant:${replay}:part-1`],
    ['of an undoing', compensationKey({ effectKey: key, step: '', send: 2 })],
    ['of the undoing of steps', compensationKey({ effectKey: key, step: 'ship', send: 1 })],
  ])('%s is bound to its chain', (_, bound) => {
    expect(isBoundToChain(bound, chain)).toBe(true)
  })

  test.each([
    ['that names the target alone', 'grant:admin:v3:ada'],
    ['of another chain', `grant:${formatId('op', other)}:ada`],
    ['of another type', `revoke:${formatId('op', root)}:ada`],
    ['that names the chain somewhere else', `ada:grant:${formatId('op', root)}:`],
    ['that has no item', `grant:${formatId('op', root)}`],
    ['of the undoing of a shared effect', compensationKey({ effectKey: 'grant:admin:v3:ada', step: '', send: 1 })],
  ])('%s is not: another operation may have it too', (_, shared) => {
    expect(isBoundToChain(shared, chain)).toBe(false)
  })
})
