/**
 * Every statement of storage/ keeps to one tenant, or is named here with the reason why it does not. So no query crosses
 * tenants by omission, and a database that is distributed by tenant sends each of them to one node. Statements that are
 * composed (Drizzle) have their text at run time only: test/storage/tenant-keys.test.ts and hot-plans.test.ts look at those.
 */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { is, Table } from 'drizzle-orm'
import { getTableConfig, type PgTable } from 'drizzle-orm/pg-core'
import ts from 'typescript'
import { describe, expect, test } from 'vitest'
import * as schema from '../../src/storage/schema.ts'
import { OVER_ALL_TENANTS, TENANT_TABLES } from '../support/tenant-exceptions.ts'
import { unheldTables } from '../support/tenant-predicates.ts'

const SRC = fileURLToPath(new URL('../../src/', import.meta.url))

interface Statement {
  /** `file function` */
  place: string
  text: string
}

const textOf = (template: ts.TemplateLiteral): string =>
  ts.isNoSubstitutionTemplateLiteral(template)
    ? template.text
    : template.head.text + template.templateSpans.map((span, index) => `$${index + 1}${span.literal.text}`).join('')

const nameOf = (statement: ts.Statement): string => {
  if (ts.isVariableStatement(statement)) return statement.declarationList.declarations[0]?.name.getText() ?? ''
  return ts.isFunctionDeclaration(statement) ? (statement.name?.text ?? '') : ''
}

const statementsOf = (file: string): Statement[] => {
  const source = ts.createSourceFile(file, readFileSync(path.join(SRC, file), 'utf8'), ts.ScriptTarget.Latest, true)
  // there `sql` makes parts of a statement, unless a function has its own
  const isComposed = /import \{[^}]*\bsql\b(?! as)[^}]*\} from 'drizzle-orm'/.test(source.text)
  const found: Statement[] = []
  for (const statement of source.statements) {
    if (
      isComposed &&
      !/\{[^{}]*\bsql\b[^{}]*\}: \w*Connection|connection\.sql|\(sql\b[^)]*\) =>/.test(statement.getText())
    )
      continue
    const visit = (node: ts.Node): void => {
      if (ts.isTaggedTemplateExpression(node) && /(^|\.)sql$/.test(node.tag.getText()))
        found.push({ place: `${file} ${nameOf(statement)}`, text: textOf(node.template) })
      ts.forEachChild(node, visit)
    }
    visit(statement)
  }
  return found
}

const files = (readdirSync(SRC, { recursive: true }) as string[]).filter((file) => /^(?!console).*\.ts$/.test(file))
const statements = files.sort().flatMap(statementsOf)

test('tables of tenants are all that have the column, but for workers, which serve all of them', () => {
  const tables = Object.values(schema)
    .filter((value) => is(value, Table))
    .map((table) => getTableConfig(table as PgTable))
    .filter(({ columns }) => columns.some(({ name }) => name === 'tenant_id'))
    .map(({ name }) => name)
  expect([...TENANT_TABLES].sort()).toEqual(
    [...tables.filter((name) => name !== 'workers'), 'dead_letter_standings'].sort(), // the last one is a view
  )
})

test('every statement that does not keep to one tenant is explained, and nothing else is', () => {
  expect(statements.length).toBeGreaterThan(200)
  const over = statements.filter(({ text }) => unheldTables(text, TENANT_TABLES).length > 0)
  expect([...new Set(over.map(({ place }) => place))].sort()).toEqual(
    [...OVER_ALL_TENANTS.values()].flatMap((places) => [...places]).sort(),
  )
})

describe('a statement is held to a tenant', () => {
  const tables = (text: string): string[] => unheldTables(text, TENANT_TABLES).map(({ table }) => table)

  test.each([
    'select 1 from operations where tenant_id = $1 and id = $2',
    'select 1 from operations o where o.tenant_id = $1',
    'select 1 from "operations" where ("operations"."tenant_id" = $1 and x) order by "operations"."created_at", "operations"."id"',
    'update "operations" set status = $1 where "operations"."tenant_id" = $2',
    'insert into effects as e (tenant_id, effect_key) select $1, $2',
    'insert into operation_events (tenant_id, operation_id) values ($1, $2)',
    'select 1 from operations o join effects e on e.tenant_id = o.tenant_id where o.tenant_id = $1',
    'with o as (select tenant_id, id from operations where tenant_id = $1) select 1 from effects e join o on o.tenant_id = e.tenant_id',
    'delete from effects where (tenant_id, effect_key) in (select * from unnest($1::int[], $2::text[]))',
    'select (select count(*) from dead_letters d where d.tenant_id = o.tenant_id) from operations o where o.tenant_id = $1',
  ])('by %s', (text) => expect(tables(text)).toEqual([]))

  test.each([
    ['select tenant_id from operations where id = $1', ['operations']],
    ['select 1 from operations o, effects e where e.tenant_id = o.tenant_id', ['operations', 'effects']],
    ['select tenant_id, id from operations where deadline_at < now() order by tenant_id', ['operations']],
    ['select 1 from operations where tenant_id = coalesce($1, tenant_id)', ['operations']],
    [
      'select 1 from operations o where o.tenant_id = $1 and exists (select from effects where operation_id = o.id)',
      ['effects'],
    ],
    [
      'update operations set status = $1 where id = $2 returning (select 1 from effects e where e.tenant_id = $3)',
      ['operations'],
    ],
    ['select 1 from operations where case when $1 then tenant_id = $2 else true end', ['operations']],
    ['select 1 from operations where (tenant_id, id) > ($1, $2)', ['operations']],
    ['select 1 from artifacts where id = $1 or (tenant_id = $2 and operation_id = $3)', ['artifacts']],
    ['select 1 from operations where ($1::int is null or tenant_id = $1::int)', ['operations']],
    ['insert into effects (effect_key) values ($1)', ['effects']],
  ])('not by %s', (text, unheld) => expect(tables(text)).toEqual(unheld))
})
