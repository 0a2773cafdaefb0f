/**
 * The table of test/CASES.md: faults that others met, what opledger does, and the tests that name each (`case 43` in the name
 * of a test, of its group, or of a row of `each`). The last column is taken from the test files, or says
 * `not applicable: …` by hand. The numbers, and what opledger does, are written by hand.
 *
 * By itself, after a test was named or renamed: node --import tsx test/cases.ts --write
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import ts from 'typescript'

export interface CaseRow {
  number: number
  area: string
  does: string
  /** As it stands in the table. */
  tests: string
}

export interface NamedTest {
  /** Below test/. */
  file: string
  name: string
  cases: number[]
}

const TESTS = fileURLToPath(new URL('.', import.meta.url))
const TABLE = path.join(TESTS, 'CASES.md')
const NOT_APPLICABLE = /^not applicable[^:]*: \S/
const ROW = /^\| *(\d+) *\| *(.*?) *\| *(.*?) *\|(?: *(.*?) *\|)?$/

/** Numbers that a name gives: `case 5, case 101: …`, `… (case 43)`. */
const casesIn = (name: string): number[] => [...name.matchAll(/\bcase (\d+)\b/g)].map(([, number]) => Number(number))

const isTest = (callee: ts.Expression): boolean => /^(it|test|describe)\b/.test(callee.getText())

const isFaultTest = (callee: ts.Expression): boolean => callee.getText() === 'faultTest'

/**
 * What names a test: the first argument of a test or a group, the first element of a row for `each`, and what a test of the
 * fault suite says (its first argument is the fault).
 */
const isName = (node: ts.StringLiteralLike | ts.TemplateExpression): boolean => {
  const { parent } = node
  if (ts.isCallExpression(parent)) {
    const [first, second] = parent.arguments
    return (first === node && isTest(parent.expression)) || (second === node && isFaultTest(parent.expression))
  }
  return ts.isArrayLiteralExpression(parent) && parent.elements[0] === node
}

/** The tests of one file that name a case. Text in comments and elsewhere names nothing. */
export const namedTestsIn = (file: string, text: string): NamedTest[] => {
  const found: NamedTest[] = []
  const visit = (node: ts.Node): void => {
    if ((ts.isStringLiteralLike(node) || ts.isTemplateExpression(node)) && isName(node)) {
      const name = ts.isTemplateExpression(node) ? node.getText().slice(1, -1) : node.text
      const cases = casesIn(name)
      if (cases.length > 0) found.push({ file, name, cases })
    }
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true))
  return found
}

export const findNamedTests = (): NamedTest[] =>
  readdirSync(TESTS, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.test.ts'))
    .sort()
    .flatMap((file) => {
      const text = readFileSync(path.join(TESTS, file), 'utf8')
      return text.includes('case ') ? namedTestsIn(file, text) : []
    })

export const parseRows = (table: string): CaseRow[] =>
  table.split('\n').flatMap((line) => {
    const [, number, area = '', does = '', tests = ''] = ROW.exec(line) ?? []
    return number === undefined ? [] : [{ number: Number(number), area, does, tests }]
  })

const cell = (tests: readonly NamedTest[]): string =>
  tests.map(({ file, name }) => `${file}: ${name.replaceAll('|', '\\|')}`).join('<br>')

const testsOf = (number: number, tests: readonly NamedTest[]): NamedTest[] =>
  tests.filter(({ cases }) => cases.includes(number))

/** The table with its last column as the test files have it; a reason stays where no test names the case. */
export const fillIn = (table: string, tests: readonly NamedTest[]): string =>
  table
    .split('\n')
    .map((line) => {
      const [row] = parseRows(line)
      if (!row) return line
      const named = testsOf(row.number, tests)
      return `| ${row.number} | ${row.area} | ${row.does} | ${named.length > 0 ? cell(named) : row.tests} |`
    })
    .join('\n')

/** What is wrong with the table, one line each. */
export const findFaults = (rows: readonly CaseRow[], tests: readonly NamedTest[]): string[] => {
  const faults: string[] = []
  const known = new Set<number>()
  for (const { number, does, tests: told } of rows) {
    if (known.has(number)) faults.push(`case ${number} has two rows`)
    known.add(number)
    if (does === '') faults.push(`case ${number} does not say what opledger does`)
    const named = testsOf(number, tests)
    if (named.length === 0) {
      if (!NOT_APPLICABLE.test(told)) {
        const reason = told === '' ? 'no test names it' : `no such test: ${told}`
        faults.push(`case ${number}: ${reason}, and it is not marked "not applicable: …"`)
      }
    } else if (told !== cell(named)) {
      faults.push(`case ${number}: its tests are not those of the table: node --import tsx test/cases.ts --write`)
    }
  }
  for (const { file, name, cases } of tests) {
    for (const number of cases) {
      if (!known.has(number)) faults.push(`case ${number}, named in ${file} ("${name}"), is not in the table`)
    }
  }
  return faults
}

export const readTable = (): string => readFileSync(TABLE, 'utf8')

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  if (process.argv[2] === '--write') writeFileSync(TABLE, fillIn(readTable(), findNamedTests()))
  for (const fault of findFaults(parseRows(readTable()), findNamedTests())) {
    console.error(fault)
    process.exitCode = 1
  }
}
