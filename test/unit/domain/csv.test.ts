import { expect, test } from 'vitest'
import { csvCell, csvLine } from '../../../src/domain/csv.ts'

test('a line has its cells between commas, and ends as RFC 4180 says', () => {
  expect(csvLine(['a', 1, null, 'b c'])).toBe('a,1,,b c\r\n')
  expect(csvLine([])).toBe('\r\n')
})

test.each([
  [null, ''],
  [0, '0'],
  [-1.5, '-1.5'],
  ['', ''],
  ['plain', 'plain'],
  ['a,b', '"a,b"'],
  ['a"b""', '"a""b"""""'],
  ['a\nb', '"a\nb"'],
  ['a\rb', '"a\rb"'],
])('%j stands as %j', (value, cell) => expect(csvCell(value)).toBe(cell))

test.each(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])(
  'a spreadsheet does not run what begins with %j',
  (sign) => {
    const cell = csvCell(`${sign}1`)
    expect(cell.replaceAll('"', '')).toBe(`'${sign}1`)
    expect(csvCell(`1${sign}`).replaceAll('"', '')).toBe(`1${sign}`)
  },
)
