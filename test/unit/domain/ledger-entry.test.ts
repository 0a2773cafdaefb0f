import { expect, test } from 'vitest'
import { csvCell, csvLine } from '../../../src/domain/csv.ts'
import { LEDGER_COLUMNS, type LedgerEntry, ledgerRow } from '../../../src/domain/ledger-entry.ts'
import { toMillis, toRfc3339, toRfc3339OrNull } from '../../../src/domain/times.ts'
import { LedgerEntryResource } from '../../../src/http/resources/outcomes.ts'

const entry: LedgerEntry = {
  ord: 1,
  seq: 2,
  itemKey: 'k',
  step: '',
  attempt: 3,
  state: 'failed',
  failureClass: 'transient',
  reasonCode: 'R',
  message: 'm',
  effectKey: 'e',
  inputHash: 'h',
  effectRef: null,
  evidenceRef: null,
  source: 'worker',
  actor: null,
  observedAt: '2026-11-29 14:20:18.123456+00',
  workerId: null,
  codeVersion: '1',
}

test('a ledger entry has the same members, in the same order, wherever it is shown', () => {
  expect(Object.keys(ledgerRow(entry))).toEqual([...LEDGER_COLUMNS])
  expect(Object.keys(LedgerEntryResource.shape)).toEqual([...LEDGER_COLUMNS])
  expect(LedgerEntryResource.parse(ledgerRow(entry))).toMatchObject({ observed_at: '2026-11-29T14:20:18.123456Z' })
})

test.each([
  [null, ''],
  [-1, '-1'],
  ['plain', 'plain'],
  ['=1+1', "'=1+1"],
  ['a,"b"\r\n', '"a,""b""\r\n"'],
])('%j is the cell %j', (value, cell) => expect(csvCell(value)).toBe(cell))

test('a line of CSV ends as RFC 4180 has it', () => expect(csvLine(['a', 1, null])).toBe('a,1,\r\n'))

test('times keep their microseconds and their offset', () => {
  expect(toRfc3339('2026-11-29 14:20:18.5+05:30')).toBe('2026-11-29T14:20:18.5+05:30')
  expect(toRfc3339('2026-11-29T14:20:18Z')).toBe('2026-11-29T14:20:18Z')
  expect(toRfc3339('2026-11-29 14:20:18-03')).toBe('2026-11-29T14:20:18-03:00')
  expect(toRfc3339('no time')).toBe('no time')
  expect([toRfc3339OrNull(null), toRfc3339OrNull('2026-11-29 14:20:18+00')]).toEqual([null, '2026-11-29T14:20:18Z'])
  expect(toMillis('1970-01-01 00:00:01+00')).toBe(1_000)
})
