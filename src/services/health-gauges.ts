/**
 * The health report of every tenant as gauges, for alerts: the same figures, judged by the same thresholds. A tenant is never
 * named: of each figure the worst tenant is shown, and in how many it is over its threshold.
 *
 * The statements behind it are dearer than those of a scrape, and what they tell changes slowly. So it is read again in the
 * background when it is older than FRESH_MS; a scrape waits for it WAIT_MS at most and shows what there is, with its age.
 *
 * Limits: TENANTS_MAX tenants; that there are more is a gauge of its own.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { readTenantIds } from '../storage/gauges.ts'
import type { ServiceContext } from './context.ts'
import { judgeTenant, readPace } from './health-report.ts'
import type { Gauge, HealthReportView } from './views.ts'

const TENANTS_MAX = 200
const FRESH_MS = 60_000
const WAIT_MS = 2_000
/** Has no rows: its report lists the installed types, so that each has its series before the first operation. */
const NOBODY = 0

interface Standing {
  type: string
  figure: string
  /** Of the worst tenant, as every figure is worse the larger it is; null: no tenant has one. */
  value: number | null
  /** Tenants over the threshold. */
  alarms: number
}

export interface HealthGauges {
  /** Never throws: what could not be read again is shown as it was, and grows old. */
  read(): Promise<Gauge[]>
}

/** Adds one tenant's report to the figures of all. */
const add = (standings: Map<string, Standing>, report: HealthReportView['types']): void => {
  for (const { type, figures, cancelContract } of report) {
    for (const { figure, value, verdict } of [...figures, ...cancelContract]) {
      const key = `${type} ${figure}`
      const standing = standings.get(key) ?? { type, figure, value: null, alarms: 0 }
      if (value !== null) standing.value = Math.max(standing.value ?? value, value)
      if (verdict === 'alarm') standing.alarms++
      standings.set(key, standing)
    }
  }
}

const toGauges = (
  standings: readonly Standing[],
  usualP95Ms: ReadonlyMap<string, number | null>,
  leftOut: boolean,
): Gauge[] => [
  {
    name: 'health_figure',
    help: 'A figure of the health report, of the tenant where it is worst. Missing: no data.',
    labelNames: ['type', 'figure'],
    values: standings.flatMap(({ type, figure, value }) =>
      value === null ? [] : [{ labels: { type, figure }, value }],
    ),
  },
  {
    name: 'health_alarms',
    help: 'Tenants whose figure is over the threshold of the health report.',
    labelNames: ['type', 'figure'],
    values: standings.map(({ type, figure, alarms }) => ({ labels: { type, figure }, value: alarms })),
  },
  {
    name: 'call_usual_p95_seconds',
    help: 'What the p95 of the type usually is: learned from its last seven days, without the last hour. Missing: too few calls.',
    labelNames: ['type'],
    values: [...usualP95Ms].flatMap(([type, ms]) => (ms === null ? [] : [{ labels: { type }, value: ms / 1_000 }])),
  },
  {
    name: 'health_tenants_left_out',
    help: `1: there are more than ${TENANTS_MAX} tenants, and those with the highest ids are not in these figures.`,
    labelNames: [],
    values: [{ labels: {}, value: leftOut ? 1 : 0 }],
  },
]

export const openHealthGauges = ({ database, types }: Pick<ServiceContext, 'database' | 'types'>): HealthGauges => {
  let gauges: Gauge[] = []
  const openedAtMs = performance.now()
  let readAtMs: number | null = null
  let reading: Promise<void> | null = null

  const readAll = async (): Promise<void> => {
    const { tenants, pace } = await database.query(async (connection) => ({
      tenants: await readTenantIds(connection, TENANTS_MAX + 1),
      pace: await readPace(connection),
    }))
    const standings = new Map<string, Standing>()
    // a connection for one tenant at a time: requests come in between
    for (const tenantId of [NOBODY, ...tenants.slice(0, TENANTS_MAX)]) {
      add(standings, await database.query((connection) => judgeTenant(connection, types, tenantId, pace)))
    }
    gauges = toGauges([...standings.values()], pace.usualP95Ms, tenants.length > TENANTS_MAX)
    readAtMs = performance.now()
  }

  return {
    async read() {
      if (readAtMs === null || performance.now() - readAtMs > FRESH_MS) {
        reading ??= readAll()
          .catch(() => {})
          .finally(() => {
            reading = null
          })
        const waiting = new AbortController()
        await Promise.race([reading, sleep(WAIT_MS, undefined, { signal: waiting.signal }).catch(() => {})])
        waiting.abort()
      }
      const ageMs = performance.now() - (readAtMs ?? openedAtMs)
      return [
        ...gauges,
        {
          name: 'health_age_seconds',
          help: 'Since the figures of the health report were read for these gauges.',
          labelNames: [],
          values: [{ labels: {}, value: ageMs / 1_000 }],
        },
      ]
    },
  }
}
