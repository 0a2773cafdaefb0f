import { describe, expect, it } from 'vitest'
import { fillIn, findFaults, findNamedTests, namedTestsIn, parseRows, readTable } from '../cases.ts'

// every test file is parsed: long on a busy machine
describe('the table of cases', { timeout: 60_000 }, () => {
  it('names real tests for every row, or says why there is none', () => {
    expect(findFaults(parseRows(readTable()), findNamedTests())).toEqual([])
  })

  it('has every row that was ever there', () => {
    expect(parseRows(readTable()).length).toBeGreaterThanOrEqual(55)
  })
})

describe('what a case is named by', () => {
  const code = `
    // case 1
    describe('case 2: a group', () => {
      it('something (case 3)', () => log('case 4'))
      it.each([['case 5: a row', 'case 6'], ['no case']])('%s', () => {})
      test(\`\${rounds} rounds, case 7, case 8\`, { timeout: 1 }, () => {})
      it('showcase 9 and cases 10', () => {})
      faultTest('F2', 'case 11: what a fault leaves', { long: 1 }, () => {})
    })`

  it('is the name of a test, of its group, or of its row', () => {
    expect(namedTestsIn('a.test.ts', code)).toEqual([
      { file: 'a.test.ts', name: 'case 2: a group', cases: [2] },
      { file: 'a.test.ts', name: 'something (case 3)', cases: [3] },
      { file: 'a.test.ts', name: 'case 5: a row', cases: [5] },
      // biome-ignore lint/suspicious/noTemplateCurlyInString: as it stands in the code
      { file: 'a.test.ts', name: '${rounds} rounds, case 7, case 8', cases: [7, 8] },
      { file: 'a.test.ts', name: 'case 11: what a fault leaves', cases: [11] },
    ])
  })
})

describe('what is wrong with a table', () => {
  const test = (name: string, ...cases: number[]) => ({ file: 'a.test.ts', name, cases })
  const faults = (table: string, ...tests: ReturnType<typeof test>[]) => findFaults(parseRows(table), tests)

  it.each([
    ['a case that nothing names', '| 1 | db | does | |', [], /^case 1: no test names it/],
    ['a test that is gone', '| 1 | db | does | a.test.ts: gone |', [], /^case 1: no such test: a\.test\.ts: gone/],
    ['a test that got another name', '| 1 | db | does | a.test.ts: old |', [test('new', 1)], /--write$/],
    ['a reason beside a test', '| 1 | db | does | not applicable: no |', [test('t', 1)], /--write$/],
    ['a reason that is none', '| 1 | db | does | not applicable: |', [], /^case 1: no such test/],
    ['a name that is not in the table', '| 1 | db | does | a.test.ts: t |', [test('t', 1, 2)], /^case 2, named in a/],
    ['a row that says nothing', '| 1 | db | | a.test.ts: t |', [test('t', 1)], /^case 1 does not say/],
    ['two rows', '| 1 | db | d | not applicable: x |\n| 1 | db | d | not applicable: x |', [], /^case 1 has two rows/],
  ])('%s', (_, table, tests, fault) => {
    expect(faults(table, ...tests)).toEqual([expect.stringMatching(fault)])
  })

  it('is nothing where every row has its test or its reason', () => {
    expect(faults('| 1 | db | d | a.test.ts: t |\n| 3 | db | d | not applicable yet: later |', test('t', 1))).toEqual(
      [],
    )
  })
})

describe('filling in', () => {
  it('takes names from the tests, keeps reasons and all that is no row', () => {
    const table = ['# Cases', '| case | area | what | tests |', '|---|---|---|---|', '| 1 | db | x | old |'].join('\n')
    const tests = [
      { file: 'a.test.ts', name: 'one | two (case 1)', cases: [1] },
      { file: 'b.test.ts', name: 'case 1', cases: [1] },
    ]
    const filled = fillIn(`${table}\n| 3 | db | y | not applicable: z |`, tests)
    expect(filled.split('\n').slice(3)).toEqual([
      '| 1 | db | x | a.test.ts: one \\| two (case 1)<br>b.test.ts: case 1 |',
      '| 3 | db | y | not applicable: z |',
    ])
    expect(findFaults(parseRows(filled), tests)).toEqual([])
  })
})
