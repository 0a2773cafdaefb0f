import type { Report } from '../storage/run/evidence.ts'

/** A report with everything that is not said left empty. */
export const report = (
  effect: { ord: number; effectKey: string; send: number },
  said: Pick<Report, 'effect' | 'item'> & Partial<Report>,
): Report => ({
  ord: effect.ord,
  effectKey: effect.effectKey,
  send: effect.send,
  failureClass: null,
  reasonCode: null,
  message: null,
  effectRef: null,
  evidenceRef: null,
  retry: null,
  fingerprint: null,
  ...said,
})
