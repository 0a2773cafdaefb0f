export const PARTS = ['headline', 'detail', 'bar', 'promise', 'button', 'trouble'] as const
type Part = (typeof PARTS)[number]

/** As much of index.html as the script reads and writes, and every headline that it had. */
export const openPage = () => {
  let press: () => void = () => {}
  const headlines: string[] = []
  const parts = Object.fromEntries(
    PARTS.map((name) => [name, { textContent: '', hidden: true, disabled: false, value: 0 }]),
  ) as Record<Part, { textContent: string; hidden: boolean; disabled: boolean; value: number }>
  Object.assign(parts.button, { addEventListener: (_: string, listener: () => void) => (press = listener) })
  Object.defineProperty(parts.headline, 'textContent', { set: (text: string) => headlines.push(text) })
  return {
    dataset: {} as { status?: string },
    querySelector: (selector: string) => parts[selector.replace(/^\[data-part="(\w+)"\]$/, '$1') as Part],
    parts,
    headlines,
    press: () => press(),
  }
}
