/**
 * Old and new programs run side by side while a fleet is upgraded, on the schema of the new one. So a migration adds, and takes
 * nothing away that an older program reads or writes; and nothing in it rewrites, or reads through, a large table under a lock
 * that stops its writers. What departs stands here with its reason. (PostgreSQL documentation, "ALTER TABLE", Notes.)
 */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'

const FOLDER = new URL('../../drizzle/', import.meta.url)
const files = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.sql'))
  .sort()

/** Statements without comments, in one line; the bodies of functions are their own business. */
const statementsOf = (text: string): string[] =>
  text
    .replace(/--[^\n]*/g, ' ')
    .replace(/\$(\w*)\$[\s\S]*?\$\1\$/g, "''")
    .split(';')
    .map((statement) => statement.replace(/\s+/g, ' ').trim())
    .filter(Boolean)

/** They have as many rows as there are operations, or items; an index on one takes minutes, in which nobody writes to it. */
const LARGE = new Set([
  'bulk_action_targets',
  'callback_inbox',
  'dead_letters',
  'effects',
  'item_retries',
  'ledger_entries',
  'operation_dependencies',
  'operation_events',
  'operation_items',
  'operation_shards',
  'operations',
  'reconciliation_cases',
  'replay_preflights',
  'webhook_attempts',
  'webhook_deliveries',
])
/** Those before it were never run on tables with rows in them: no version was released. */
const FIRST_ON_FULL_TABLES = '0016'

/** What is asked of a statement, with the tables that are made beside it and the statements before it. */
type Breaks = (statement: string, made: ReadonlySet<string>, before: readonly string[]) => boolean

const RULES: readonly { rule: string; breaks: Breaks }[] = [
  {
    rule: 'takes something away',
    breaks: (statement) => /\bDROP (?!NOT NULL|DEFAULT)/i.test(statement) || /^(TRUNCATE|DELETE)\b/i.test(statement),
  },
  { rule: 'renames something', breaks: (statement) => /\bRENAME\b/i.test(statement) },
  { rule: 'rewrites a column', breaks: (statement) => /\bALTER (COLUMN )?\w+ (SET DATA )?TYPE\b/i.test(statement) },
  {
    rule: 'asks for a value that an older program does not write',
    breaks: (statement, made) =>
      /\bSET NOT NULL\b/i.test(statement) ||
      (isOfOld(statement, made) &&
        columnsAdded(statement).some(
          (column) => /\bNOT NULL\b/i.test(column) && !/\bDEFAULT\b|\bGENERATED\b/i.test(column),
        )),
  },
  {
    rule: 'writes every row of a table',
    breaks: (statement, made) =>
      /^UPDATE\b/i.test(statement) ||
      (isOfOld(statement, made) &&
        columnsAdded(statement).some(
          (column) =>
            /\bDEFAULT (?!'|\d|true|false|null|now\(\))/i.test(column) ||
            /\bSTORED\b|\bSERIAL\b|\bIDENTITY\b/i.test(column),
        )),
  },
  {
    rule: 'reads a large table through while its writers wait',
    breaks: (statement, made) => {
      const indexed = / IF NOT EXISTS /i.test(statement) ? '' : indexedBy(statement)
      const isChecked = /\bADD (CONSTRAINT \w+ )?(CHECK|FOREIGN KEY|UNIQUE|PRIMARY KEY)\b/i.test(statement)
      return (
        (LARGE.has(indexed) && !made.has(indexed)) ||
        (isChecked && isOfOld(statement, made) && LARGE.has(tableOf(statement)) && !/\bNOT VALID\b/i.test(statement))
      )
    },
  },
  {
    rule: 'builds an index while a large table is locked',
    breaks: (statement, made, before) => {
      const isLarge = (table: string): boolean => LARGE.has(table) && !made.has(table)
      return isLarge(indexedBy(statement)) && before.some((one) => /^ALTER TABLE/i.test(one) && isLarge(tableOf(one)))
    },
  },
]

/** The table of the index that it makes, or ''. */
const indexedBy = (statement: string): string =>
  /^CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?\w+ ON (?:ONLY )?(\w+)/i.exec(statement)?.[1] ?? ''

const tableOf = (statement: string): string =>
  /\bTABLE (?:IF (?:NOT )?EXISTS )?(?:ONLY )?(\w+)/i.exec(statement)?.[1] ?? ''
/** Of a table that an earlier migration has made. */
const isOfOld = (statement: string, made: ReadonlySet<string>): boolean =>
  /^ALTER TABLE/i.test(statement) && !made.has(tableOf(statement))
/** What follows each ADD COLUMN, up to the next action. */
const columnsAdded = (statement: string): string[] =>
  statement
    .split(/\bADD COLUMN\b/i)
    .slice(1)
    .map((text) => text.split(/, (?:ADD|ALTER|DROP)\b/i)[0] ?? '')

const breachesOf = (text: string): string[] => {
  const statements = statementsOf(text)
  const made = new Set(statements.filter((one) => /^CREATE TABLE/i.test(one)).map(tableOf))
  return statements.flatMap((statement, index) =>
    RULES.filter(({ breaks }) => breaks(statement, made, statements.slice(0, index))).map(
      ({ rule }) => `${rule}: ${statement.slice(0, 60).trim()}`,
    ),
  )
}

/** By file: what breaks a rule, and why it may. */
const EXPLAINED: Readonly<Record<string, readonly { breach: RegExp; because: string }[]>> = {
  '0001_dead_letters.sql': [
    {
      breach: /takes something away: DROP INDEX dead_letters_fingerprint/,
      because: 'no program needs it to be right; its successor is made in the same commit',
    },
  ],
  '0014_due_retries.sql': [
    {
      breach: /takes something away: DROP INDEX item_retries_due/,
      because: 'no program needs it to be right; its successor is made before it',
    },
  ],
  '0015_scopes.sql': [
    { breach: /writes every row of a table: UPDATE api_keys/, because: 'there are few keys' },
    { breach: /writes every row of a table: UPDATE bulk_actions/, because: 'only the open ones, which are few' },
    { breach: /writes every row of a table: UPDATE operation_types/, because: 'only the paused ones, which are few' },
  ],
  '0016_audit.sql': [{ breach: /writes every row of a table: UPDATE api_keys/, because: 'there are few keys' }],
  '0003_steps.sql': [
    {
      breach: /takes something away: ALTER TABLE item_retries/,
      because: 'a CHECK is replaced by a wider one, which allows all that the old one did',
    },
  ],
}

test.each(files)('%s only expands, or says why not', (file) => {
  const isFirst = file < FIRST_ON_FULL_TABLES
  const breaches = breachesOf(readFileSync(new URL(file, FOLDER), 'utf8')).filter(
    (breach) => !(isFirst && /^(reads a large table through|builds an index)/.test(breach)),
  )
  const explained = EXPLAINED[file] ?? []
  expect(breaches.filter((breach) => !explained.some((one) => one.breach.test(breach)))).toEqual([])
  // and nothing is explained that is not there
  for (const { breach } of explained)
    expect(
      breaches.some((found) => breach.test(found)),
      String(breach),
    ).toBe(true)
})

test('every explanation is of a migration that there is', () => {
  expect(Object.keys(EXPLAINED).filter((file) => !files.includes(file))).toEqual([])
})

describe('it is a breach', () => {
  test.each([
    ['ALTER TABLE operations DROP COLUMN reason', 'takes something away'],
    ['DROP TABLE effects', 'takes something away'],
    ['ALTER TABLE operations RENAME COLUMN reason TO why', 'renames something'],
    ['ALTER TABLE operations ALTER COLUMN version TYPE numeric', 'rewrites a column'],
    [
      'ALTER TABLE operations ALTER COLUMN reason SET NOT NULL',
      'asks for a value that an older program does not write',
    ],
    [
      'ALTER TABLE operations ADD COLUMN a text, ADD COLUMN b text NOT NULL',
      'asks for a value that an older program does not write',
    ],
    ['ALTER TABLE operations ADD COLUMN at timestamptz DEFAULT clock_timestamp()', 'writes every row of a table'],
    ['UPDATE operations SET reason = null', 'writes every row of a table'],
    ['CREATE INDEX i ON effects (tenant_id)', 'reads a large table through'],
    ['ALTER TABLE effects ADD CONSTRAINT c CHECK (send > 0)', 'reads a large table through'],
    [
      'ALTER TABLE operations ADD COLUMN a text; CREATE INDEX IF NOT EXISTS i ON effects (tenant_id)',
      'builds an index while a large table is locked',
    ],
  ])('%s', (statement, rule) => expect(breachesOf(statement).join()).toMatch(rule))
})

describe('it is none', () => {
  test.each([
    "ALTER TABLE operations ADD COLUMN a text, ADD COLUMN b text NOT NULL DEFAULT ''",
    'CREATE TABLE made (id integer NOT NULL); ALTER TABLE made ADD COLUMN at timestamptz NOT NULL DEFAULT clock_timestamp()',
    'ALTER TABLE operations ALTER COLUMN reason DROP NOT NULL',
    'CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ DELETE FROM effects; DROP TABLE effects $$',
    '-- DROP TABLE effects\nCREATE INDEX IF NOT EXISTS i ON effects (tenant_id); CREATE INDEX j ON workers (host)',
    'CREATE TABLE made (id integer); CREATE INDEX i ON made (id)',
    'CREATE INDEX IF NOT EXISTS i ON effects (tenant_id); ALTER TABLE operations ADD COLUMN a text',
    'ALTER TABLE workers ADD COLUMN a text; CREATE INDEX IF NOT EXISTS i ON effects (tenant_id)',
    'ALTER TABLE operations ADD COLUMN a text; CREATE TABLE made (id integer); CREATE INDEX i ON made (id)',
    'ALTER TABLE effects ADD CONSTRAINT c CHECK (send > 0) NOT VALID',
  ])('%s', (text) => expect(breachesOf(text)).toEqual([]))
})
