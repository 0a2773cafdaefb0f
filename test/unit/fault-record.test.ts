import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { bySources, FAULTS, fillIn, renderRecord, renderTable, type SuiteRun, sumUp } from '../faults/record.ts'

const run = (change: Partial<SuiteRun>, ...results: Partial<SuiteRun['results'][number]>[]): SuiteRun => ({
  date: '2026-11-29',
  form: 'short',
  only: null,
  source: 'aaaaaaaaaaaa',
  seconds: 60,
  results: results.map((result) => ({
    fault: 'F1',
    says: 'it holds',
    runs: 10,
    failures: 0,
    seed: 7,
    skipped: null,
    ...result,
  })),
  ...change,
})

/** What is said of the runs, above each table. */
const described = (runs: readonly SuiteRun[]): string =>
  renderRecord(runs)
    .split('\n')
    .filter((line) => line.startsWith('Runs of'))
    .join('\n')

describe('the record of the fault suite', () => {
  it('adds up what was run, and bounds the rate by 3/n', () => {
    const rows = sumUp([run({}, { runs: 100, seed: 7 }), run({ date: '2026-11-30' }, { runs: 200, seed: 1_000 })])
    expect(rows).toEqual([
      {
        fault: 'F1',
        says: 'it holds',
        runs: 300,
        failures: 0,
        bound: 0.01,
        date: '2026-11-30',
        seeds: [
          [7, 106],
          [1_000, 1_199],
        ],
        skipped: null,
      },
    ])
    expect(renderTable(rows).split('\n').at(-1)).toBe(
      '| F1 | it holds | 300 | 0 | < 1.0 % | 2026-11-30 | 7–106, 1000–1199 |',
    )
  })

  it('gives no bound where anything failed', () => {
    const rows = sumUp([run({}, { runs: 100 }), run({}, { runs: 100, failures: 1 })])
    expect(rows[0]).toMatchObject({ runs: 200, failures: 1, bound: null })
    expect(renderTable(rows)).toContain('| 200 | 1 | – |')
  })

  it('adds up nothing of other sources, and forgets them', () => {
    expect(bySources([run({ source: 'old' }, { runs: 900 }), run({}, { runs: 5 })])).toEqual([[run({}, { runs: 5 })]])
    expect(bySources([])).toEqual([])
    expect(renderRecord([])).toBe('')
  })

  describe('remembers the long form', () => {
    const long = run({ source: 'old', form: 'long', seconds: 5_000 }, { runs: 900 })
    const newest = run({}, { runs: 5 })

    it('of the last sources that it was run on, in a table of its own', () => {
      expect(bySources([run({ source: 'older', form: 'long' }), long, run({ source: 'between' }), newest])).toEqual([
        [newest],
        [long],
      ])
      expect(described([long, newest]).split('\n')).toEqual([
        'Runs of these sources (tree aaaaaaaaaa): 1 short (60 s); no whole long run.',
        'Runs of earlier sources, the last that the long form was run on (tree old): no whole short run; 1 long (5000 s).',
      ])
      expect(renderRecord([long, newest]).match(/^\| F1 .*/gm)).toEqual([
        '| F1 | it holds | 5 | 0 | < 60 % | 2026-11-29 | 7–11 |',
        '| F1 | it holds | 900 | 0 | < 0.33 % | 2026-11-29 | 7–906 |',
      ])
    })

    it('until the newest have one', () => {
      const again = run({ form: 'long' })
      expect(bySources([long, newest, again])).toEqual([[newest, again]])
    })

    it('where nothing was left out of it', () => {
      expect(bySources([{ ...long, only: ['F1'] }, newest])).toEqual([[newest]])
    })
  })

  it('says what was skipped, and never counts it as run', () => {
    const skipped = { runs: 0, skipped: 'no loop devices' }
    expect(renderTable(sumUp([run({}, skipped)]))).toContain('| skipped: no loop devices | – |')
    // once it could run
    expect(sumUp([run({}, skipped), run({}, { runs: 3 })])[0]).toMatchObject({
      runs: 3,
      skipped: null,
      seeds: [[7, 9]],
    })
  })

  it('lists faults by their numbers', () => {
    const rows = sumUp([run({}, { fault: 'F10' }, { fault: 'F2', says: 'b' }, { fault: 'F2', says: 'a' })])
    expect(rows.map(({ fault, says }) => `${fault} ${says}`)).toEqual(['F2 a', 'F2 b', 'F10 it holds'])
  })

  it('counts the runs of both forms', () => {
    expect(described([run({}), run({ form: 'long', seconds: 7_000.4 })])).toBe(
      'Runs of these sources (tree aaaaaaaaaa): 1 short (60 s); 1 long (7000 s).',
    )
  })

  it('does not call a part of a run the whole', () => {
    expect(described([run({}), run({ form: 'long', only: ['F1', 'F30'], seconds: 5_000 })])).toBe(
      'Runs of these sources (tree aaaaaaaaaa): 1 short (60 s); no whole long run; of it F1, F30 alone (5000 s).',
    )
  })

  it('calls parts that leave nothing out a whole', () => {
    const rest = FAULTS.filter((fault) => fault !== 'F1')
    expect(
      described([
        run({ form: 'long', only: ['F1'], seconds: 60 }),
        run({ form: 'long', only: rest.slice(1), seconds: 5 }),
      ]),
    ).toContain('no whole long run; of it F1 alone (60 s)')
    expect(
      described([run({ form: 'long', only: ['F1'], seconds: 60 }), run({ form: 'long', only: rest, seconds: 5 })]),
    ).toBe(
      `Runs of these sources (tree aaaaaaaaaa): no whole short run; all of the long form, in parts: F1 alone (60 s); ${rest.join(', ')} alone (5 s).`,
    )
  })

  it('knows each fault that has a test', () => {
    const directory = new URL('../faults/', import.meta.url).pathname
    const named = readdirSync(directory)
      .filter((name) => name.endsWith('.test.ts'))
      .flatMap((name) => [...readFileSync(`${directory}${name}`, 'utf8').matchAll(/'(F\d+)'/g)])
      .map(([, fault]) => fault)
    expect([...new Set(named)].sort()).toEqual([...FAULTS].sort())
  })

  it('fills in a place, and knows when there is none', () => {
    const readme = 'a\n<!-- table: by hand -->\nold\n<!-- /table -->\nb $1'
    expect(fillIn(readme, 'table', 'new $&')).toBe('a\n<!-- table: by hand -->\n\nnew $&\n\n<!-- /table -->\nb $1')
    expect(() => fillIn(readme, 'boundaries', '')).toThrow('no place called boundaries')
  })
})
