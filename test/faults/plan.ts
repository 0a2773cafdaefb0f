/** What a round will do: which operations, when, and who is killed or frozen at which moment. All of it from the seed. */

export const EXTERNAL = { operations: 3, items: 120 }
export const TRANSACTIONAL = { operations: 2, items: 3_000 }
const SUBMIT_MS = 1_000
const KILL_MS = 2_500
const KILLS = { min: 1, max: 3 }
const BOTH_SHARE = 0.3
const FREEZE_SHARE = 0.3
/** Longer than the lease of the types (3 s). */
const FREEZE_MS = { min: 3_200, max: 4_200 }
const DELAY_MS = { min: 20, max: 100 }

/** What the effect server does with an item; the rest is `ok`. Each of them can end as applied exactly once. */
const MODES: readonly (readonly [mode: string, share: number])[] = [
  ['busy_once', 0.03],
  ['reset_once', 0.01],
  ['apply_then_reset', 0.01],
  ['apply_then_hang', 0.005],
  ['error_after_apply', 0.01],
]

/** mulberry32: small, and the same everywhere. */
export const createRandom = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const between = ({ min, max }: { min: number; max: number }, random: () => number): number =>
  min + random() * (max - min)

export interface Plan {
  type: 'fault-grant' | 'fault-row'
  key: string
  atMs: number
  items: { key: string; input: Record<string, unknown> }[]
}
type Move = { atMs: number } & ({ kind: 'kill'; workers: number[] } | { kind: 'freeze'; worker: number; ms: number })

export const planOperations = (round: number, random: () => number): Plan[] => {
  const chooseMode = (): string => {
    let at = random()
    for (const [mode, share] of MODES) {
      if (at < share) return mode
      at -= share
    }
    return 'ok'
  }
  const plan = (type: Plan['type'], number: number, count: number): Plan => {
    const key = `round-${round}-${type}-${number}`
    const items = Array.from({ length: count }, (_, index) => ({
      key: `${key}-${index}`,
      input: type === 'fault-row' ? {} : { mode: chooseMode(), delay_ms: Math.floor(between(DELAY_MS, random)) },
    }))
    return { type, key, atMs: random() * SUBMIT_MS, items }
  }
  return [
    ...Array.from({ length: EXTERNAL.operations }, (_, number) => plan('fault-grant', number, EXTERNAL.items)),
    ...Array.from({ length: TRANSACTIONAL.operations }, (_, number) => plan('fault-row', number, TRANSACTIONAL.items)),
  ]
}

export const planMoves = (random: () => number): Move[] => {
  const kills = KILLS.min + Math.floor(random() * (KILLS.max - KILLS.min + 1))
  const moves: Move[] = Array.from({ length: kills }, () => {
    const first = Math.floor(random() * 2)
    const workers = random() < BOTH_SHARE ? [first, 1 - first] : [first]
    return { kind: 'kill', atMs: random() * KILL_MS, workers }
  })
  if (random() < FREEZE_SHARE) {
    const ms = between(FREEZE_MS, random)
    moves.push({ kind: 'freeze', atMs: random() * KILL_MS, worker: Math.floor(random() * 2), ms })
  }
  return moves.sort((a, b) => a.atMs - b.atMs)
}
