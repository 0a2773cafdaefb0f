import { expect, test } from 'vitest'
import { drawChart } from '../../../bench/harness/chart.ts'
import { fillIn, mergeResults, renderCharts, renderFleet, renderTable } from '../../../bench/harness/report.ts'
import { atLeast, atMost, judge, skipped } from '../../../bench/harness/result.ts'

const line = (id: string, ratios: number[], goal = atLeast(1.5)) => ({
  ...judge({ id, what: 'POST', against: 'a bare | route', goal, ratios, absolute: 'ours 6,400/s' }),
  date: '2026-12-01',
})

test('the median of the rounds is held against the goal, whatever the best one was', () => {
  expect(line('B1', [1.4, 1.49, 9])).toMatchObject({ ratio: 1.49, met: false, runs: 3, spread: [1.4, 9] })
  expect(line('B1', [1.5])).toMatchObject({ met: true, goal: '≥ 1.5' })
  expect(line('B7', [1.31, 1.2, 1.29], atMost(1.3))).toMatchObject({ ratio: 1.29, met: true, goal: '≤ 1.3' })
  expect(() => line('B1', [])).toThrow('gave no ratio')
  expect(() => line('B1', [Number.NaN])).toThrow('gave no ratio')
})

test('what was skipped is told with its reason, and is not met', () => {
  const result = skipped({ id: 'B3', what: 'jobs', against: 'BullMQ', goal: atMost(9), reason: 'there is no Redis' })
  expect(result).toMatchObject({ ratio: null, met: false, runs: 0, spread: null, note: 'skipped: there is no Redis' })
  expect(result.date).toMatch(/^20\d\d-\d\d-\d\d$/)
  expect(renderTable([result])).toContain('| B3 | jobs | BullMQ | – | ≤ 9 | skipped | skipped: there is no Redis |')
})

test('a run replaces the lines of its own benches, all of them, and leaves the others', () => {
  const earlier = [line('B2', [1]), line('B10', [1]), line('B10', [2])]
  const merged = mergeResults(earlier, [line('B10', [3]), line('B1', [4])])
  expect(merged.map(({ id, ratio }) => [id, ratio])).toEqual([
    ['B1', 4],
    ['B2', 1],
    ['B10', 3],
  ])
})

test('a goal that is not met stands out, and no text breaks the table', () => {
  const [head, , missed, met] = renderTable([line('B1', [1.2, 1.3, 1.4]), line('B1', [2])]).split('\n')
  expect(head?.split('|')).toHaveLength(10)
  expect(missed).toBe(
    '| B1 | POST | a bare \\| route | 1.30 (1.20–1.40) | ≥ 1.5 | **no** | ours 6,400/s | 2026-12-01 |',
  )
  expect(met).toContain('| 2 | ≥ 1.5 | yes |')
})

test('the README is changed in its place only, and not at all where there is none', () => {
  const readme = 'before\n<!-- bench: written by a run -->\nold\n<!-- /bench -->\nafter\n'
  expect(fillIn(readme, 'costs $1')).toBe(
    'before\n<!-- bench: written by a run -->\n\ncosts $1\n\n<!-- /bench -->\nafter\n',
  )
  expect(fillIn('nothing here', 'new')).toBeNull()
  expect(renderCharts(['B10', 'B2'])).toBe('![B2](bench/charts/b2.svg)\n\n![B10](bench/charts/b10.svg)')
})

test('figures for sizing a fleet are those that were measured, and no others', () => {
  const rows = renderFleet([line('B1', [1.6]), line('B1', [2.1]), line('B5', [1.6])]).split('\n')
  expect(rows[2]).toBe('| operations that one api accepts | ours 6,400/s | B1 |')
  expect(rows.slice(3).every((row) => row.includes('| not measured yet |'))).toBe(true)
  expect(fillIn('<!-- fleet: by a run -->\n<!-- /fleet -->\n', 'new', 'fleet')).toBe(
    '<!-- fleet: by a run -->\n\nnew\n\n<!-- /fleet -->\n',
  )
})

test('a chart has a bar for each value, in proportion, and colours for dark pages', () => {
  const svg = drawChart({
    title: 'Polls <fast>',
    unit: 'requests/s',
    bars: [
      { label: 'opledger', value: 1_000, kind: 'opledger' },
      { label: 'half & less', value: 500, kind: 'limit' },
      { label: 'nearly nothing', value: 0, kind: 'peer' },
    ],
  })
  expect([...svg.matchAll(/<rect class="(\w+)" .*? width="(\d+)"/g)].map(([, kind, width]) => [kind, width])).toEqual([
    ['opledger', '400'],
    ['limit', '200'],
    ['peer', '1'],
  ])
  expect(svg).toContain('half &amp; less')
  expect(svg).not.toContain('<fast>')
  expect(svg).toContain('prefers-color-scheme: dark')
  expect(() => drawChart({ title: 'none', unit: 'ms', bars: [] })).toThrow('no bars')
  const odd = { label: 'odd', value: Number.NaN, kind: 'peer' } as const
  expect(() => drawChart({ title: 'odd', unit: 'ms', bars: [odd] })).toThrow('without a length')
})
