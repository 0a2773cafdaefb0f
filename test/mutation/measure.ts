/** What Stryker's reports say: figures by file, and each surviving mutant beside the reason why it may survive. */

export const PARTS = ['domain', 'engine'] as const
export type Part = (typeof PARTS)[number]

/** What is read of a report (mutation-testing-report-schema). */
export interface MutationReport {
  files: Record<string, { source: string; mutants: Mutant[] }>
}

interface Mutant {
  mutatorName: string
  replacement?: string
  status: 'Killed' | 'Timeout' | 'Survived' | 'NoCoverage' | 'Ignored' | 'CompileError' | 'RuntimeError' | 'Pending'
  location: { start: { line: number; column: number }; end: { line: number; column: number } }
}

/** A reason for all survivors of `file` (without a folder) whose line has the text `at`. */
export interface Explanation {
  file: string
  at: string
  /** Only those whose replacement has this text. */
  to?: string
  group: 'equivalent' | 'bound' | 'timing' | 'words'
  why: string
}

const GROUPS: Record<Explanation['group'], string> = {
  equivalent: 'Equivalent: no behaviour differs, or none that a caller could see',
  bound: 'Bounds: a limit is a little further away, or is kept by another line as well',
  timing: 'Timing: what changes is when something is looked at again, and nothing depends on the instant',
  words: 'Words for people',
}

export interface Figures {
  caught: number
  /** Of those caught: the mutant ran into its time limit. */
  timeouts: number
  survived: number
  uncovered: number
  ignored: number
  /** Per cent of those that were not ignored. */
  score: number
}

interface Survivor {
  place: string
  mutator: string
  change: string
  explanation: Explanation | null
}

export interface Measured {
  files: { name: string; figures: Figures }[]
  parts: { name: string; figures: Figures }[]
  total: Figures
  survivors: Survivor[]
}

const figuresOf = (mutants: readonly Mutant[]): Figures => {
  const count = (...statuses: Mutant['status'][]): number =>
    mutants.filter(({ status }) => statuses.includes(status)).length
  const [timeouts, survived, uncovered] = [count('Timeout'), count('Survived'), count('NoCoverage')]
  const caught = count('Killed') + timeouts
  const score = (100 * caught) / (caught + survived + uncovered || 1)
  return { caught, timeouts, survived, uncovered, ignored: count('Ignored'), score }
}

const oneLine = (text: string): string => {
  const line = text.replace(/\s+/g, ' ').trim()
  return line.length > 90 ? `${line.slice(0, 89)}…` : line
}

const originalOf = (source: string, { start, end }: Mutant['location']): string => {
  const lines = source.split('\n').slice(start.line - 1, end.line)
  const last = lines.length - 1
  lines[last] = (lines[last] ?? '').slice(0, end.column - 1)
  lines[0] = (lines[0] ?? '').slice(start.column - 1)
  return lines.join('\n')
}

export const measure = (reports: readonly MutationReport[], explained: readonly Explanation[]): Measured => {
  const files = reports.flatMap(({ files }) => Object.entries(files)).sort(([a], [b]) => a.localeCompare(b))
  const mutantsBelow = (folder: string): Mutant[] =>
    files.filter(([path]) => path.startsWith(folder)).flatMap(([, { mutants }]) => mutants)
  const survivors = files.flatMap(([path, { source, mutants }]) =>
    mutants
      .filter(({ status }) => status === 'Survived' || status === 'NoCoverage')
      .map(({ mutatorName, replacement = '', location }): Survivor => {
        const line = source.split('\n')[location.start.line - 1] ?? ''
        const file = path.split('/').at(-1)
        const explanation = explained.find(
          (candidate) =>
            candidate.file === file && line.includes(candidate.at) && replacement.includes(candidate.to ?? ''),
        )
        return {
          place: `${path.replace(/^src\//, '')}:${location.start.line}`,
          mutator: mutatorName,
          change: `${oneLine(originalOf(source, location))} → ${oneLine(replacement)}`,
          explanation: explanation ?? null,
        }
      }),
  )
  return {
    files: files.map(([name, { mutants }]) => ({ name, figures: figuresOf(mutants) })),
    parts: PARTS.map((part) => ({ name: `src/${part}`, figures: figuresOf(mutantsBelow(`src/${part}/`)) })),
    total: figuresOf(mutantsBelow('')),
    survivors,
  }
}

const row = (name: string, figures: Figures): string => {
  const { caught, timeouts, survived, uncovered, ignored, score } = figures
  return `| ${name} | ${score.toFixed(1)} % | ${caught} | ${timeouts} | ${survived} | ${uncovered} | ${ignored} |`
}

const code = (text: string): string => `\`\` ${text.replaceAll('|', '\\|')} \`\``

/** The generated part of README.md. */
export const render = ({ files, parts, total, survivors }: Measured, date: string): string => {
  const table = (rows: readonly { name: string; figures: Figures }[]): string[] => [
    '| | score | caught | of these timed out | survived | not covered | left out |',
    '|---|---|---|---|---|---|---|',
    ...rows.map(({ name, figures }) => row(name, figures)),
  ]
  const grouped = Object.entries(GROUPS).flatMap(([group, title]) => {
    const members = survivors.filter(({ explanation }) => explanation?.group === group)
    const reasons = new Set(members.map(({ explanation }) => explanation))
    return [
      `### ${title} (${members.length})`,
      '',
      ...[...reasons].flatMap((reason) => [
        `- ${reason?.why}`,
        ...members
          .filter(({ explanation }) => explanation === reason)
          .map(({ place, change }) => `  - ${place} ${code(change)}`),
      ]),
      '',
    ]
  })
  const open = survivors.filter(({ explanation }) => explanation === null)
  return [
    '',
    `${date}: **${total.score.toFixed(2)} %** of ${total.caught + total.survived + total.uncovered} mutants were caught.`,
    '',
    ...table([...parts, { name: '**both**', figures: total }]),
    '',
    ...table(files.filter(({ figures }) => figures.survived + figures.uncovered > 0)),
    '',
    ...grouped,
    `### Not explained yet (${open.length})`,
    '',
    ...open.map(({ place, mutator, change }) => `- ${place} ${mutator} ${code(change)}`),
    '',
  ].join('\n')
}
