/**
 * For `--import`: from here on this process believes that it is CLOCK_SHIFT_MS later (or, below zero, earlier). Timers and
 * `performance.now()` go on as they are, as on a host whose wall clock is wrong.
 */
const shiftMs = Number(process.env.CLOCK_SHIFT_MS)
const RealDate = Date

class ShiftedDate extends RealDate {
  constructor(...given: unknown[]) {
    super(...((given.length === 0 ? [RealDate.now() + shiftMs] : given) as [number]))
  }

  static override now(): number {
    return RealDate.now() + shiftMs
  }
}

globalThis.Date = ShiftedDate as DateConstructor
