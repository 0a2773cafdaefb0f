import { describe, expect, it } from 'vitest'
import { PROMPT, paced, renderSvg } from '../../scripts/recording/svg.ts'
import { readScreen } from '../../scripts/recording/terminal.ts'

const plain = (text: string) => [{ style: 'plain', text }]

describe('what a terminal showed', () => {
  it('keeps every state of a line that is redrawn in place, and when it was there', () => {
    const shown = readScreen(
      [
        { atMs: 0, text: '\r\u001b[2K[#.]' },
        { atMs: 500, text: '\r\u001b[2K[##]' },
        { atMs: 900, text: '\r\ndone\r\n' },
      ],
      80,
    )
    expect(shown).toEqual([
      { line: 0, spans: plain('[#.]'), fromMs: 0, untilMs: 500 },
      { line: 0, spans: plain('[##]'), fromMs: 500, untilMs: null },
      { line: 1, spans: plain('done'), fromMs: 900, untilMs: null },
    ])
  })

  it('knows styles, wraps what is too long, and takes a line that is erased away', () => {
    const shown = readScreen(
      [
        { atMs: 0, text: '\u001b[1m$ a\u001b[0m b\n' },
        { atMs: 1, text: 'abcdef' },
        { atMs: 2, text: '\r\u001b[2K' },
      ],
      5,
    )
    expect(shown.map(({ line, spans, untilMs }) => [line, spans, untilMs])).toEqual([
      [0, [{ style: 'bold', text: '$ a' }, ...plain(' b')], null],
      [1, plain('abcde'), null],
      [2, plain('f'), 2],
    ])
  })

  it('throws on what it does not know, rather than show something else', () => {
    expect(() => readScreen([{ atMs: 0, text: '\u001b[3A' }], 80)).toThrow(/sequence/)
    expect(() => readScreen([{ atMs: 0, text: '\u001b[31m' }], 80)).toThrow(/sequence/)
    expect(() => readScreen([{ atMs: 0, text: 'a\tb' }], 80)).toThrow(/character/)
  })
})

describe('a recording', () => {
  const CHUNKS = [
    { atMs: 7_000, text: `${PROMPT}one\u001b[0m\n` },
    { atMs: 67_000, text: `a <b> & c\n${PROMPT}two\u001b[0m\n` },
    { atMs: 67_100, text: 'last' },
  ]

  it('shortens silence, and waits before the next command', () => {
    const times = paced(CHUNKS).map(({ atMs }) => atMs)
    expect(times[0]).toBe(0)
    expect(times[1]).toBeLessThan(2_000)
    expect(times[2]).toBeGreaterThan((times[1] ?? 0) + 2_000)
    expect(times[3]).toBe((times[2] ?? 0) + 100)
  })

  it('is one file that asks for nothing, with each line as it was', () => {
    const size = { columns: 40, rows: 2, title: 't', description: 'd' }
    const svg = renderSvg(readScreen(paced(CHUNKS), size.columns), size)
    expect(svg).toContain('>a &lt;b&gt; &amp; c</text>')
    expect(svg).toContain('<tspan class="b">$ one</tspan>')
    expect(svg.replace('http://www.w3.org/2000/svg', '')).not.toMatch(/https?:|url\(|<script|<image/)
    const animations = new Set([...svg.matchAll(/animation-name:(\w+)/g)].map(([, name]) => name))
    const defined = new Set([...svg.matchAll(/@keyframes (\w+)/g)].map(([, name]) => name))
    expect(defined).toEqual(animations)
    // four lines in a window of two: at the end the first two are out of it
    expect(svg).toContain('.s{transform:translateY(-36px)}')
  })

  it('shows the last moment where nothing moves: what was replaced is hidden', () => {
    const shown = readScreen(
      [
        { atMs: 0, text: 'before' },
        { atMs: 900, text: '\r\u001b[2Kafter' },
      ],
      40,
    )
    const svg = renderSvg(shown, { columns: 40, rows: 2, title: 't', description: 'd' })
    expect(svg).toMatch(/<text class="p"[^>]*>before</)
    expect(svg).toMatch(/<text y[^>]*>after</)
    const [always] = svg.split('@media (prefers-reduced-motion')
    expect(always).toContain('.p{visibility:hidden}')
  })
})
