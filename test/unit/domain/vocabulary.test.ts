import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { AFTER_WHEN } from '../../../src/domain/after.ts'
import { SUPERSEDE_REASONS } from '../../../src/domain/artifact.ts'
import { BULK_ACTIONS, BULK_STATUSES, BULK_TARGET_STATES } from '../../../src/domain/bulk-action.ts'
import { CALLBACK_OUTCOMES } from '../../../src/domain/callback.ts'
import { EFFECT_STATES } from '../../../src/domain/effect.ts'
import { FAILURE_CLASSES } from '../../../src/domain/failure.ts'
import { EVIDENCE_SOURCES, ITEM_STATES } from '../../../src/domain/ledger.ts'
import { LEDGER_COLUMNS, type LedgerEntry, ledgerRow } from '../../../src/domain/ledger-entry.ts'
import { FINAL_STATUSES, OPERATION_STATUSES } from '../../../src/domain/operation.ts'
import { CASE_CAUSES } from '../../../src/domain/reconciliation.ts'
import { REPLAYABLE_STATES } from '../../../src/domain/replay.ts'
import { DELIVERY_STATES, WEBHOOK_EVENTS } from '../../../src/domain/webhook.ts'

const migrations = readdirSync('drizzle')
  .filter((name) => name.endsWith('.sql'))
  .sort()
  .map((name) => readFileSync(`drizzle/${name}`, 'utf8'))
  .join('\n')
const contract: unknown = JSON.parse(readFileSync('openapi/openapi.json', 'utf8'))

/** Every list of words that a constraint of the database allows, sorted. */
const allowed = [...migrations.matchAll(/\bin\s*\(((?:\s*'[^']*'\s*,?)+)\)/gi)].map(([, words = '']) =>
  [...words.matchAll(/'([^']*)'/g)].map(([, word]) => word).sort(),
)

/** Every list of words that the published contract names. */
const published: string[][] = []
const collect = (node: unknown): void => {
  if (typeof node !== 'object' || node === null) return
  if ('enum' in node && Array.isArray(node.enum)) published.push(node.enum)
  for (const child of Object.values(node)) collect(child)
}
collect(contract)

describe('the words of the domain', () => {
  test.each([
    ['operation statuses', OPERATION_STATUSES],
    ['final statuses', FINAL_STATUSES],
    ['item states', ITEM_STATES],
    ['effect states', EFFECT_STATES],
    ['failure classes', FAILURE_CLASSES],
    ['sources of evidence', EVIDENCE_SOURCES],
    ['causes of cases', CASE_CAUSES],
    ['what those before must come to', AFTER_WHEN],
    ['outcomes of callbacks', CALLBACK_OUTCOMES],
    ['webhook events', WEBHOOK_EVENTS],
    ['states of deliveries', DELIVERY_STATES],
    ['why an artifact is superseded', SUPERSEDE_REASONS],
    ['bulk actions', BULK_ACTIONS],
    ['statuses of bulk actions', BULK_STATUSES],
    ['states of their targets', BULK_TARGET_STATES],
  ])('%s are those that the database allows', (_what, words) => {
    expect(allowed).toContainEqual([...words].sort())
  })

  test.each([
    ['operation statuses', OPERATION_STATUSES],
    ['failure classes', FAILURE_CLASSES],
    ['states of items that can be replayed', REPLAYABLE_STATES],
    ['what those before must come to', AFTER_WHEN],
    ['bulk actions', BULK_ACTIONS],
  ])('%s are those that the contract publishes, in its order', (_what, words) => {
    expect(published).toContainEqual([...words])
  })

  test('the header of a ledger as CSV names the members of its rows, in their order', () => {
    const entry: LedgerEntry = {
      ord: 1,
      seq: 2,
      itemKey: 'k',
      step: null,
      attempt: 1,
      state: 'applied',
      failureClass: null,
      reasonCode: null,
      message: null,
      effectKey: 'e',
      inputHash: 'h',
      effectRef: null,
      evidenceRef: null,
      source: 'worker',
      actor: null,
      observedAt: '2026-11-29 14:20:18.123456+00',
      workerId: null,
      codeVersion: 'c',
    }
    expect(LEDGER_COLUMNS).toEqual(Object.keys(ledgerRow(entry)))
  })
})
