/**
 * A recording as one SVG file: no script, no font, no request. It plays over and over; where motion is not wanted, or the
 * viewer knows no CSS, it is the picture of the last moment. Colours follow the reader's light or dark scheme.
 */
import type { Chunk, Shown, Span } from './terminal.ts'

/** So long nothing may happen in a recording, however long it took. */
const SILENCE_MS_MAX = 900
/** To read what a command said, before the next one comes. */
const READING_MS = 2_600
/** The last moment stays. */
const LAST_MS = 7_000

const CELL_WIDTH = 7.8
const LINE_HEIGHT = 18
const FONT_SIZE = 13
const PADDING = 16

/** Begins the line of a command. */
export const PROMPT = '\u001b[1m$ '

/** As it is to be watched: silence shortened, and a pause before each command. */
export const paced = (chunks: readonly Chunk[]): Chunk[] => {
  const result: Chunk[] = []
  let before = chunks[0]?.atMs ?? 0
  let now = 0
  for (const { atMs, text } of chunks) {
    now += Math.min(SILENCE_MS_MAX, atMs - before)
    before = atMs
    for (const [index, part] of text.split(PROMPT).entries()) {
      if (index > 0 && result.length > 0) now += READING_MS
      const whole = index > 0 ? PROMPT + part : part
      if (whole !== '') result.push({ atMs: Math.round(now), text: whole })
    }
  }
  return result
}

interface Options {
  columns: number
  rows: number
  title: string
  description: string
}

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const CLASSES = { bold: ' class="b"', dim: ' class="d"' } as const

const spanText = ({ style, text }: Span): string =>
  style === 'plain' ? escaped(text) : `<tspan${CLASSES[style]}>${escaped(text)}</tspan>`

const rounded = (value: number): string => String(Number(value.toFixed(2)))

export const renderSvg = (shown: readonly Shown[], { columns, rows, title, description }: Options): string => {
  const endMs = Math.max(...shown.map(({ fromMs }) => fromMs)) + LAST_MS
  const percent = (ms: number): string => `${rounded((100 * ms) / endMs)}%`
  const names = new Map<string, string>()
  /** The name of an animation; each is written once. */
  const animation = (steps: string): string => {
    const name = names.get(steps) ?? `k${names.size.toString(36)}`
    names.set(steps, name)
    return name
  }
  const visibility = ({ fromMs, untilMs }: Shown): string =>
    [
      fromMs === 0 ? '' : `0%{visibility:hidden}`,
      `${percent(fromMs)}{visibility:visible}`,
      untilMs === null ? '' : `${percent(untilMs)}{visibility:hidden}`,
    ].join('')

  const texts = shown.map((state) => {
    const { line, spans, untilMs } = state
    const characters = spans.reduce((sum, { text }) => sum + [...text].length, 0)
    const name = animation(visibility(state))
    const past = untilMs === null ? '' : ' class="p"'
    const width = rounded(characters * CELL_WIDTH)
    const y = (line + 1) * LINE_HEIGHT - 5
    return `<text${past} y="${y}" textLength="${width}" style="animation-name:${name}">${spans.map(spanText).join('')}</text>`
  })
  const scroll = scrollOf(shown, rows)
  const steps = scroll.map(({ atMs, lines }) => `${percent(atMs)}{transform:translateY(${-lines * LINE_HEIGHT}px)}`)
  const scrolling = animation(`0%{transform:translateY(0)}${steps.join('')}`)
  const atEnd = (scroll.at(-1)?.lines ?? 0) * LINE_HEIGHT

  const [inner, height] = [Math.ceil(columns * CELL_WIDTH), rows * LINE_HEIGHT]
  const box = `width="${inner + 2 * PADDING}" height="${height + 2 * PADDING}"`
  const keyframes = [...names].map(([frames, name]) => `@keyframes ${name}{${frames}}`).join('\n')
  return `<svg xmlns="http://www.w3.org/2000/svg" ${box} viewBox="0 0 ${inner + 2 * PADDING} ${height + 2 * PADDING}" role="img" aria-labelledby="t d" xml:space="preserve">
<title id="t">${escaped(title)}</title>
<desc id="d">${escaped(description)}</desc>
<style>
rect{fill:#f6f8fa;stroke:#d0d7de}
text{font:${FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328;white-space:pre}
.b{font-weight:700;fill:#0550ae}
.d{fill:#57606a}
.p{visibility:hidden}
.s{transform:translateY(${-atEnd}px)}
@media (prefers-color-scheme:dark){rect{fill:#0d1117;stroke:#30363d}text{fill:#e6edf3}.b{fill:#79c0ff}.d{fill:#9198a1}}
@media (prefers-reduced-motion:no-preference){
.s,text{animation:${endMs}ms step-end infinite}
.s{animation-name:${scrolling}}
${keyframes}
}
</style>
<rect x=".5" y=".5" width="${inner + 2 * PADDING - 1}" height="${height + 2 * PADDING - 1}" rx="8"/>
<svg x="${PADDING}" y="${PADDING}" width="${inner}" height="${height}"><g class="s">
${texts.join('\n')}
</g></svg>
</svg>
`
}

/** How many lines have gone out at the top of a window of `rows`, and since when. */
const scrollOf = (shown: readonly Shown[], rows: number): { atMs: number; lines: number }[] => {
  const steps: { atMs: number; lines: number }[] = []
  for (const { line, fromMs } of shown) {
    const lines = line + 1 - rows
    const last = steps.at(-1)
    if (lines <= (last?.lines ?? 0)) continue
    if (last?.atMs === fromMs) last.lines = lines
    else steps.push({ atMs: fromMs, lines })
  }
  return steps
}
