/** What the sequences went through: one in which something never happens proves less than it says. */
import { outcomeOf, type World } from './world.ts'

export type Tally = Map<string, number>

export const count = (tally: Tally, world: World, told: readonly string[]): void => {
  const add = (what: string, by = 1): void => void tally.set(what, (tally.get(what) ?? 0) + by)
  add('sequences')
  add('commands', told.length)
  for (const operation of world.operations) {
    add(`status ${operation.status}`)
    if (operation.replayOf !== null) add('replays')
    for (const item of operation.items) {
      add(`item ${outcomeOf(item)?.state ?? 'unprocessed'}`)
      for (const { reasonCode, source } of item.entries) {
        add(`reason ${reasonCode ?? 'none'}`)
        add(`source ${source}`)
      }
      if (item.open) add(`open case ${item.open.cause}`)
      for (const resolution of item.resolutions) add(`resolved ${resolution}`)
      if (item.retry) add(`waits ${item.retry.reason}`)
    }
  }
  for (const { state } of world.effects.values()) add(`effect ${state}`)
  for (const { failureClass } of world.deadLetters) add(`dead letter ${failureClass}`)
  for (const text of told) {
    const [word] =
      text.match(
        /replay-blocked|preflight-outdated|resend-in-progress|, late$|is refused|is rolled back|comes too late|takes over|which was expired|operation-[a-z-]+/,
      ) ?? []
    if (word) add(`told ${word}`)
  }
}

export const printed = (tally: Tally): string =>
  [...tally]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([what, times]) => `${what}: ${times}`)
    .join('\n')
