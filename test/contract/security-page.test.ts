import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { SCOPE_BUNDLES, SCOPES } from '../../src/domain/scope.ts'
import { scopeTable } from '../support/scope-table.ts'

const read = (file: string): string => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')
/** As the formatter pads the cells of a table, or not. */
const squeezed = (text: string): string => text.replace(/ {2,}/g, ' ').replace(/-{3,}/g, '---')
const page = squeezed(read('docs/security.md'))
const between = (begin: string, end: string): string => page.split(begin)[1]?.split(end)[0]?.trim() ?? ''

test('docs/security.md has the scope of every route, as the OpenAPI document says', () => {
  const { paths } = JSON.parse(read('openapi/openapi.json'))
  // wrong? what is expected here belongs between the two comments of the page
  expect(between('<!-- routes -->', '<!-- end of routes -->')).toBe(squeezed(scopeTable(paths)))
})

test('docs/security.md explains every scope and every name for several', () => {
  for (const scope of SCOPES) expect(page).toContain(`| \`${scope}\` |`)
  for (const [name, scopes] of Object.entries(SCOPE_BUNDLES)) {
    expect(page).toContain(`| \`${name}\` | ${scopes.map((scope) => `\`${scope}\``).join(', ')} |`)
  }
})
