/**
 * Whether a statement keeps to one tenant. Each table of tenants' rows that it names has to be held to a tenant: by a comparison
 * of its `tenant_id` with a value, or with the column of something else that is held. The text is read as far as that takes: a
 * table and its alias, and what stands behind them up to the end of the same parentheses.
 */

interface Reference {
  table: string
  alias: string | null
}

/** Words that may follow a table and are no alias of it. */
const KEYWORDS = new Set(
  'where set on using left right inner cross join lateral order group limit for returning values select union with as from offset fetch having full'.split(
    ' ',
  ),
)
const TENANT = 'tenant_id'

/** Without its comments and quotes, with single spaces. */
const plain = (statement: string): string =>
  statement
    .replace(/--[^\n]*/g, ' ')
    .replaceAll('"', '')
    .replace(/\s+/g, ' ')
    .trim()

/** From `start` to where the parentheses around it end. */
const scopeFrom = (text: string, start: number): string => {
  let depth = 0
  for (let at = start; at < text.length; at++) {
    if (text[at] === '(') depth++
    if (text[at] === ')' && --depth < 0) return text.slice(start, at)
  }
  return text.slice(start)
}

interface Found extends Reference {
  scope: string
}

/** Without the statements in it, where a column without a name is of another table. */
const onlyOuter = (scope: string): string => {
  let outer = ''
  /** Of each open parenthesis: it is a statement's, or within one. */
  const inner: boolean[] = []
  for (const [at, letter] of [...scope].entries()) {
    if (letter === '(')
      inner.push(inner.at(-1) === true || /^\( ?(?:select|with|insert|update|delete)\b/i.test(scope.slice(at, at + 10)))
    if (inner.at(-1) !== true) outer += letter
    if (letter === ')') inner.pop()
  }
  return outer
}

const referencesIn = (text: string, owned: ReadonlySet<string>): Found[] => {
  const found: Found[] = []
  for (const match of text.matchAll(/(?:\b(?:from|join|into|update|using)|,) (?:only )?([a-z_]+)\b(?!\.)/gi)) {
    const [whole, table = ''] = match
    if (!owned.has(table)) continue
    const behind = match.index + whole.length
    const [, next = ''] = /^ (?:as )?([a-z_]+)\b/i.exec(text.slice(behind)) ?? []
    const alias = next === '' || KEYWORDS.has(next.toLowerCase()) ? null : next
    found.push({ table, alias, scope: scopeFrom(text, behind) })
  }
  return found
}

/** What the tenant of a reference is compared with; a name stands for its column, null for a value. */
const comparisons = ({ scope, table, alias }: Found): (string | null)[] => {
  const compared: (string | null)[] = []
  for (const [name, text] of [
    ['', onlyOuter(scope)],
    [`${alias ?? table}\\.`, scope],
  ] as const) {
    // behind these it is held in one case of several
    const column = `(?<![.\\w]|\\bthen |\\bor \\(?)${name}${TENANT}\\b`
    const other = '([a-z_]+)\\.tenant_id\\b'
    for (const [, behind = ''] of text.matchAll(new RegExp(`${column} ?= ?(.{1,40})`, 'gi'))) {
      // `coalesce` stands for "or any"
      if (!/^coalesce/i.test(behind)) compared.push(new RegExp(`^${other}`, 'i').exec(behind)?.[1] ?? null)
    }
    for (const [, before = ''] of text.matchAll(new RegExp(`([a-z_]+)\\.tenant_id ?= ?${column}`, 'gi')))
      compared.push(before)
    const held = [
      `${column} in\\b`,
      // as a part of a row
      `\\( ?${column}, [^()]*\\) ?(=|in\\b)`,
      // rows that are made
      `^ ?(?:(?:as )?${alias} )?\\([^()]*(?<![.\\w])${TENANT}\\b[^()]*\\) ?(select|values|overriding)`,
      // rows that the database makes of a tenant and an entry
      `^ select a\\.\\* from .*\\baudit_row\\(`,
    ]
    if (held.some((pattern) => new RegExp(pattern, 'i').test(scope))) compared.push(null)
  }
  return compared
}

/** The tables of `owned` that the statement reads or writes over all tenants. */
export const unheldTables = (statement: string, owned: ReadonlySet<string>): Reference[] => {
  const text = plain(statement)
  if (/^lock\b/i.test(text)) return []
  const references = referencesIn(text, owned).map((reference) => ({ ...reference, by: comparisons(reference) }))
  const nameOf = ({ alias, table }: Reference): string => alias ?? table
  const held = new Set(references.filter(({ by }) => by.includes(null)))
  const isHeld = (name: string): boolean => {
    const named = references.filter((reference) => nameOf(reference) === name)
    // what is no table of tenants is made of such tables, and those are looked at
    return named.length === 0 || named.some((reference) => held.has(reference))
  }
  for (let before = -1; before !== held.size; ) {
    before = held.size
    for (const reference of references)
      if (reference.by.some((name) => name !== null && isHeld(name))) held.add(reference)
  }
  return references.filter((reference) => !held.has(reference)).map(({ table, alias }) => ({ table, alias }))
}
