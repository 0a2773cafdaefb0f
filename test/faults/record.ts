/**
 * What the runs of the suite add up to. A run is recorded with the sources that it attacked, and a table counts the runs of the
 * same sources only: a bound says something about the code that was run. The long form takes too long to be run for every
 * change, so the last sources that it was run on have a table of their own as long as the newest ones have no long run.
 */
import type { FaultResult } from './harness/fault.ts'

/** One run of the suite. */
export interface SuiteRun {
  /** `2026-11-29`, UTC. */
  date: string
  form: 'short' | 'long'
  /** The faults that were run; null: all that belong to the form. */
  only: readonly string[] | null
  /** Of the tree `src` in git, which is the same wherever these sources are. */
  source: string
  seconds: number
  results: FaultResult[]
}

export interface FaultRow {
  fault: string
  says: string
  runs: number
  failures: number
  /** Of the failure rate, with 95 % confidence; null: nothing was run, or something failed. */
  bound: number | null
  date: string
  /** From the first to the last of each run. */
  seeds: [number, number][]
  /** Why it did not run. */
  skipped: string | null
}

const numberOf = (fault: string): number => Number(fault.slice(1))

/** One row a promise, over all these runs, which are of the same sources. */
export const sumUp = (runs: readonly SuiteRun[]): FaultRow[] => {
  const rows = new Map<string, FaultRow>()
  for (const run of runs) {
    for (const result of run.results) {
      const key = `${result.fault} ${result.says}`
      const row = rows.get(key)
      const runs = (row?.runs ?? 0) + result.runs
      const failures = (row?.failures ?? 0) + result.failures
      const seeds: [number, number][] = result.runs === 0 ? [] : [[result.seed, result.seed + result.runs - 1]]
      rows.set(key, {
        fault: result.fault,
        says: result.says,
        runs,
        failures,
        bound: runs > 0 && failures === 0 ? 3 / runs : null,
        date: run.date,
        seeds: [...(row?.seeds ?? []), ...seeds],
        skipped: runs > 0 ? null : result.skipped,
      })
    }
  }
  return [...rows.values()].sort((a, b) => numberOf(a.fault) - numberOf(b.fault) || a.says.localeCompare(b.says))
}

const renderSeeds = (seeds: FaultRow['seeds']): string =>
  seeds.map(([first, last]) => `${first}–${last}`).join(', ') || '–'

const percent = (bound: number): string => (bound >= 1 ? '–' : `< ${(100 * bound).toPrecision(2)} %`)

export const renderTable = (rows: readonly FaultRow[]): string => {
  const lines = rows.map(({ fault, says, runs, failures, bound, date, seeds, skipped }) =>
    skipped === null
      ? `| ${fault} | ${says} | ${runs} | ${failures} | ${bound === null ? '–' : percent(bound)} | ${date} | ${renderSeeds(seeds)} |`
      : `| ${fault} | ${says} | skipped: ${skipped} | – | – | ${date} | – |`,
  )
  return [
    '| fault | what held | runs | failures | rate (3/n) | date | seeds |',
    '|---|---|---|---|---|---|---|',
    ...lines,
  ].join('\n')
}

/**
 * The README with `text` in the place called `name`: between `<!-- name: … -->` and `<!-- /name -->`. Throws when there is no
 * such place.
 */
export const fillIn = (readme: string, name: string, text: string): string => {
  const place = new RegExp(`(<!-- ${name}: [^\\n]*-->\\n)[^]*?(<!-- /${name} -->)`)
  if (!place.test(readme)) throw new Error(`the README has no place called ${name}`)
  return readme.replace(place, (_all, begin: string, end: string) => `${begin}\n${text}\n\n${end}`)
}

/** Each of them that the suite tries, by its number. */
export const FAULTS: readonly string[] = Array.from({ length: 31 }, (_, index) => `F${index + 1}`)

/** Whether the runs of a form leave no fault out. */
const isWhole = (form: SuiteRun['form'], runs: readonly SuiteRun[]): boolean => {
  const ofForm = runs.filter((run) => run.form === form)
  const tried = new Set(ofForm.flatMap(({ only }) => only ?? []))
  return ofForm.some(({ only }) => only === null) || FAULTS.every((fault) => tried.has(fault))
}

/** The runs of the newest sources, and those of the last ones before them with a whole long form, if the newest have none. */
export const bySources = (all: readonly SuiteRun[]): SuiteRun[][] => {
  const sources = [...new Set(all.map(({ source }) => source).reverse())]
  const [newest, ...earlier] = sources.map((source) => all.filter((run) => run.source === source))
  if (!newest) return []
  const whole = isWhole('long', newest) ? undefined : earlier.find((runs) => isWhole('long', runs))
  return whole ? [newest, whole] : [newest]
}

const seconds = (run: SuiteRun): string => `${Math.round(run.seconds)} s`

const describeForm = (form: SuiteRun['form'], all: readonly SuiteRun[]): string => {
  const runs = all.filter((run) => run.form === form)
  const whole = runs.filter(({ only }) => only === null)
  const parts = runs.filter(({ only }) => only !== null)
  const listed = parts.map((run) => `${run.only?.join(', ')} alone (${seconds(run)})`)
  if (whole.length > 0)
    return [`${whole.length} ${form} (${whole.map(seconds).join(', ')})`, ...listed].join('; of it ')
  if (isWhole(form, runs)) return `all of the ${form} form, in parts: ${listed.join('; ')}`
  return [`no whole ${form} run`, ...listed].join('; of it ')
}

const describeRuns = (sources: string, runs: readonly SuiteRun[]): string =>
  `Runs of ${sources} (tree ${runs[0]?.source.slice(0, 10)}): ${describeForm('short', runs)}; ${describeForm('long', runs)}.`

export const renderRecord = (all: readonly SuiteRun[]): string =>
  bySources(all)
    .map((runs, index) => {
      const sources = index === 0 ? 'these sources' : 'earlier sources, the last that the long form was run on'
      return `${describeRuns(sources, runs)}\n\n${renderTable(sumUp(runs))}`
    })
    .join('\n\n')
