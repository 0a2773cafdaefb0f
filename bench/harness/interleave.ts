/**
 * Rounds in which every side has its turn, so that both sides of a ratio meet the same machine. The sides change their order
 * from round to round, as whoever comes second may find something warm or worn. The first round warms up and is not counted.
 */
export const interleave = async <Side extends string>(
  sides: Readonly<Record<Side, () => Promise<number>>>,
  options: {
    /** Those that count. */
    rounds: number
    /** Before each turn: what the last one left behind is not to be paid by the next. */
    settle(): Promise<unknown>
    say(line: string): void
  },
): Promise<Record<Side, number[]>> => {
  const names = Object.keys(sides) as Side[]
  const figures = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<Side, number[]>
  for (let round = 0; round <= options.rounds; round++) {
    const order = orderOf(names, round)
    for (const name of order) {
      await options.settle()
      const figure = await sides[name]()
      if (round > 0) figures[name].push(figure)
      options.say(`${round === 0 ? 'warm-up' : `round ${round} of ${options.rounds}`}: ${name} ${short(figure)}`)
    }
  }
  return figures
}

/** Turned by one each round, and backwards in every other. */
const orderOf = <T>(names: readonly T[], round: number): T[] => {
  const turned = names.map((_, index) => names[(index + round) % names.length] as T)
  return round % 2 === 0 ? turned : turned.reverse()
}

/** Three digits that matter. */
export const short = (value: number): string =>
  Math.abs(value) >= 1_000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)))
