import { judgeHealth } from '../../src/domain/health.ts'

const { health, cancelContract } = judgeHealth({
  oldestWaitingSeconds: null,
  p95Ms: null,
  usualP95Ms: null,
  retries: { count: 0, calls: 0 },
  deadLetters: 0,
  cancelToFinalP95Seconds: null,
  effectsAfterCancel: 0,
  ledgerRowsMissing: 0,
  uncertain: { count: 0, calls: 0 },
  casesOpenOver24h: 0,
  touchesMoney: false,
  owner: null,
})

/** The names of the nine figures, as the health report has them: the four of health, then the five of the cancel contract. */
export const HEALTH_FIGURES = [...health, ...cancelContract].map(({ figure }) => figure)
