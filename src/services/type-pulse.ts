import { readTypePulses } from '../storage/type-pulses.ts'
import type { ServiceContext } from './context.ts'
import type { TypePulse } from './operation-view.ts'

/** Polls must not pay for it: one read serves everybody for this long. */
const FRESH_MS = 2_000

export type PulseReader = (type: string, version: number) => Promise<TypePulse>

const SILENT: TypePulse = { downstreamErrors5m: { count: 0, calls: 0 }, liveWorkers: 0 }

/** The pulse of each type, read at most every FRESH_MS, however many ask. */
export const openPulseReader = ({ database }: Pick<ServiceContext, 'database'>): PulseReader => {
  let pulses: Promise<Map<string, TypePulse>> | null = null
  let readAt = Number.NEGATIVE_INFINITY
  return async (type, version) => {
    const now = performance.now()
    if (pulses === null || now - readAt > FRESH_MS) {
      readAt = now
      pulses = database.query(readTypePulses)
      pulses.catch(() => {
        pulses = null
      })
    }
    return (await pulses).get(`${type}@${version}`) ?? SILENT
  }
}
