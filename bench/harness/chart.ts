/**
 * Bar charts as SVG, readable on a light page and on a dark one: the colours follow the reader's preference, and the background
 * stays that of the page. No fonts, no scripts, nothing that is fetched.
 */
import type { Bar, Chart } from './bench.ts'
import { short } from './interleave.ts'

const WIDTH = 720
const LABEL = 230
const VALUE = 90
const ROW = 28
const BAR = 18
const TOP = 44
const BOTTOM = 10

const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600 }
    .unit { fill: #59636e }
    .opledger { fill: #0969da }
    .peer { fill: #8c959f }
    .limit { fill: none; stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 4 3 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .unit { fill: #9198a1 }
      .opledger { fill: #4493f8 }
      .peer { fill: #6e7681 }
      .limit { stroke: #9198a1 }
    }`

const quoted = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

/** The longest bar fills the room; a bar that is not there would be taken for a zero, so each is one pixel at least. */
const drawBar = ({ label, value, kind }: Bar, index: number, largest: number): string => {
  const top = TOP + index * ROW
  const length = Math.max(1, Math.round((value / largest) * (WIDTH - LABEL - VALUE)))
  const middle = top + BAR / 2 + 5
  return `  <text x="${LABEL - 10}" y="${middle}" text-anchor="end">${quoted(label)}</text>
  <rect class="${kind}" x="${LABEL}" y="${top}" width="${length}" height="${BAR}" rx="2"/>
  <text x="${LABEL + length + 8}" y="${middle}">${short(value)}</text>`
}

/** An SVG file. Throws where there is nothing to draw, or a value that is no length. */
export const drawChart = ({ title, unit, bars }: Chart): string => {
  if (bars.length === 0 || bars.some(({ value }) => !Number.isFinite(value) || value < 0)) {
    throw new Error(`the chart "${title}" has no bars, or one without a length`)
  }
  const largest = Math.max(...bars.map(({ value }) => value), Number.MIN_VALUE)
  const height = TOP + bars.length * ROW + BOTTOM
  const told = bars.map(({ label, value }) => `${label}: ${short(value)}`).join('; ')
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${quoted(`${title}, ${unit}. ${told}`)}">
  <style>${STYLE}
  </style>
  <text class="title" x="10" y="22">${quoted(title)} <tspan class="unit" font-weight="400">(${quoted(unit)})</tspan></text>
${bars.map((bar, index) => drawBar(bar, index, largest)).join('\n')}
</svg>
`
}
