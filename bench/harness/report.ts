/** What a run leaves behind: `results.json`, the charts, and the table in the README. */
import type { Result } from './result.ts'

const numberOf = (id: string): number => Number(id.slice(1))

/** The lines of a run in the place of those that earlier ones gave for the same benches; in the order of the benches. */
export const mergeResults = (earlier: readonly Result[], now: readonly Result[]): Result[] => {
  const measured = new Set(now.map(({ id }) => id))
  return [...earlier.filter(({ id }) => !measured.has(id)), ...now].sort((a, b) => numberOf(a.id) - numberOf(b.id))
}

const digits = (value: number): string => (Number.isInteger(value) ? String(value) : value.toFixed(2))

const ratioOf = ({ ratio, spread }: Result): string => {
  if (ratio === null) return '–'
  if (spread === null || spread[0] === spread[1]) return digits(ratio)
  return `${digits(ratio)} (${digits(spread[0])}–${digits(spread[1])})`
}

const verdictOf = ({ ratio, met }: Result): string => (ratio === null ? 'skipped' : met ? 'yes' : '**no**')

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ')

export const renderTable = (results: readonly Result[]): string => {
  const rows = results.map((result) => {
    const figures = [result.absolute, result.note ?? ''].filter((text) => text !== '').join('; ')
    const { id, what, against, goal, date } = result
    const cells = [id, what, against, ratioOf(result), goal, verdictOf(result), figures, date]
    return `| ${cells.map(cell).join(' | ')} |`
  })
  return [
    '| | what | against | ratio (spread) | goal | met | figures of the machine | date |',
    '|---|---|---|---|---|---|---|---|',
  ]
    .concat(rows)
    .join('\n')
}

/** Charts beside each other, by the ids of their benches. */
export const renderCharts = (ids: readonly string[]): string =>
  [...ids]
    .sort((a, b) => numberOf(a) - numberOf(b))
    .map((id) => `![${id}](bench/charts/${chartFile(id)})`)
    .join('\n\n')

export const chartFile = (id: string): string => `${id.toLowerCase()}.svg`

/** Ratios count within one run; where and when that was says what the other figures are worth. */
export const describeMachine = (machine: {
  date: string
  cpu: string
  cores: number
  memoryGb: number
  node: string
  database: string
}): string =>
  `The last run, on ${machine.date}: ${machine.cores} cores (${machine.cpu}), ${machine.memoryGb} GB, Node ${machine.node}, ${machine.database}. Load, servers and database shared them.`

/** What somebody who sizes a fleet asks, and the bench that answers. */
const FLEET: readonly { question: string; id: string }[] = [
  { question: 'operations that one api accepts', id: 'B1' },
  { question: 'polls that one api answers', id: 'B2' },
  { question: 'items of one worker, transactional', id: 'B3' },
  { question: 'calls of one worker to a provider that answers at once', id: 'B4' },
  { question: 'what a second worker adds, to a provider that takes 50 ms', id: 'B9' },
  { question: 'claims and POSTs beside 3 million operations', id: 'B7' },
  { question: 'memory, for an operation of a million items', id: 'B8' },
]

/** The figures for sizing a fleet, as far as they were measured. */
export const renderFleet = (results: readonly Result[]): string => {
  const rows = FLEET.map(({ question, id }) => {
    const measured = results.filter((result) => result.id === id && result.ratio !== null)
    // what was measured at once has one text
    const figures = [...new Set(measured.map(({ absolute }) => absolute))].join('; ')
    return `| ${cell(question)} | ${figures === '' ? 'not measured yet' : cell(figures)} | ${id} |`
  })
  return ['| | figures of the machine that ran the benches | bench |', '|---|---|---|', ...rows].join('\n')
}

/** A page with `text` between `<!-- name: … -->` and `<!-- /name -->`. Null: there is no such place. */
export const fillIn = (page: string, text: string, name = 'bench'): string | null => {
  const place = new RegExp(`(<!-- ${name}: [^\\n]*-->\\n)[\\s\\S]*?(<!-- /${name} -->)`)
  if (!place.test(page)) return null
  return page.replace(place, (_all, begin: string, end: string) => `${begin}\n${text}\n\n${end}`)
}
