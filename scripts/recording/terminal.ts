/**
 * What a terminal showed, and when: from the bytes that programs wrote to it. It knows as much of a terminal as the command
 * line makes use of, and throws on the rest, so that a recording is either right or not there.
 */

export interface Chunk {
  /** Since the beginning of the recording. */
  atMs: number
  text: string
}

export type Style = 'plain' | 'bold' | 'dim'

export interface Span {
  style: Style
  text: string
}

/** One state of one line. Lines are counted from the first one ever written, not from the top of a window. */
export interface Shown {
  line: number
  spans: readonly Span[]
  fromMs: number
  /** Null: it stays. */
  untilMs: number | null
}

const ESCAPE = '\u001b'
/** What follows it: SGR, or erasing a line. */
const SEQUENCE = /^\[([\d;]*)([mK])/
const STYLES: Readonly<Record<string, Style>> = { '': 'plain', '0': 'plain', '1': 'bold', '2': 'dim' }

interface Cell {
  style: Style
  character: string
}

/** `columns`: what goes beyond them stands in the next line. */
export const readScreen = (chunks: readonly Chunk[], columns: number): Shown[] => {
  const lines: Cell[][] = [[]]
  const shown: Shown[] = []
  /** The state that each line is in. */
  const open: (Shown | undefined)[] = []
  const changed = new Set<number>()
  let row = 0
  let column = 0
  let style: Style = 'plain'

  const lineAt = (index: number): Cell[] => (lines[index] ??= [])
  const down = (): void => {
    row++
    column = 0
  }
  const put = (character: string): void => {
    if (column === columns) down()
    const line = lineAt(row)
    while (line.length < column) line.push({ style: 'plain', character: ' ' })
    line[column++] = { style, character }
    changed.add(row)
  }
  const obey = (rest: string): number => {
    const [sequence, parameters = '', command] = SEQUENCE.exec(rest) ?? []
    const next = STYLES[parameters]
    if (sequence !== undefined && command === 'K' && parameters === '2') {
      lines[row] = []
      changed.add(row)
    } else if (sequence !== undefined && command === 'm' && next !== undefined) style = next
    else throw new Error(`no terminal sequence that is known here: ESC ${JSON.stringify(rest.slice(0, 12))}`)
    return sequence.length
  }
  const take = (text: string): void => {
    for (let at = 0; at < text.length; ) {
      const character = String.fromCodePoint(text.codePointAt(at) ?? 0)
      at += character.length
      if (character === ESCAPE) at += obey(text.slice(at))
      else if (character === '\n') down()
      else if (character === '\r') column = 0
      else if (/\p{Cc}/u.test(character))
        throw new Error(`no character that is known here: ${JSON.stringify(character)}`)
      else put(character)
    }
  }
  const commit = (atMs: number): void => {
    for (const line of changed) {
      const spans = spansOf(lineAt(line))
      const before = open[line]
      if (before !== undefined && JSON.stringify(before.spans) === JSON.stringify(spans)) continue
      if (before !== undefined) before.untilMs = atMs
      open[line] = undefined
      if (spans.length === 0) continue
      const state: Shown = { line, spans, fromMs: atMs, untilMs: null }
      open[line] = state
      shown.push(state)
    }
    changed.clear()
  }

  for (const { atMs, text } of chunks) {
    take(text)
    commit(atMs)
  }
  return shown
}

/** Without what is blank at the end. */
const spansOf = (cells: readonly Cell[]): Span[] => {
  const spans: Span[] = []
  const end = cells.findLastIndex(({ character }) => character !== ' ')
  for (const { style, character } of cells.slice(0, end + 1)) {
    const last = spans.at(-1)
    if (last?.style === style) last.text += character
    else spans.push({ style, text: character })
  }
  return spans
}
