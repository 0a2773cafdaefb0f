import { areCountsSensitive } from '../domain/count-range.ts'
import { type HealthVerdict, judgeHealth, type Verdict } from '../domain/health.ts'
import { RATE_CALLS_MIN } from '../domain/replay.ts'
import type { Connection } from '../storage/connection.ts'
import {
  type CancelStanding,
  readCancelStandings,
  readLedgerRowsMissing,
  readNow,
  readTypeStandings,
} from '../storage/health.ts'
import { readTypeWindows, readUsualP95, SILENT_WINDOW, type TypeWindow } from '../storage/type-minutes.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'
import type { HealthReportView } from './views.ts'

/** p95 and retry rate are those of the last hour, judged against the week before it. */
const WINDOW_MINUTES = 60

const NO_CANCEL: CancelStanding = { cancelToFinalP95Seconds: null, effectsAfterCancel: 0 }

const worst = (judged: readonly HealthVerdict[]): Verdict =>
  (['alarm', 'ok'] as const).find((verdict) => judged.some((one) => one.verdict === verdict)) ?? 'no_data'

/** How fast the types are, over all tenants; filled as types come up, so that many tenants are judged by one reading. */
interface Pace {
  windows: Map<string, TypeWindow>
  /** Null: it has no usual value. */
  usualP95Ms: Map<string, number | null>
}

export const readPace = async (connection: Connection): Promise<Pace> => ({
  windows: await readTypeWindows(connection, WINDOW_MINUTES),
  usualP95Ms: new Map(),
})

const addUsual = async (connection: Connection, { usualP95Ms }: Pace, names: string[]): Promise<void> => {
  const unknown = names.filter((name) => !usualP95Ms.has(name))
  if (unknown.length === 0) return
  const read = await readUsualP95(connection, unknown)
  for (const name of unknown) usualP95Ms.set(name, read.get(name) ?? null)
}

/** Every installed type, and every one that the tenant's rows name, judged. */
export const judgeTenant = async (
  connection: Connection,
  types: ServiceContext['types'],
  tenantId: number,
  pace: Pace,
): Promise<HealthReportView['types']> => {
  const installed = types.list().map((type) => type.name)
  const standings = await readTypeStandings(connection, tenantId, installed)
  const cancels = await readCancelStandings(connection, tenantId)
  const missing = await readLedgerRowsMissing(connection, tenantId)
  await addUsual(
    connection,
    pace,
    standings.map((standing) => standing.type),
  )
  return standings.map((standing) => {
    const type = types.get(standing.type)
    const window = pace.windows.get(standing.type) ?? SILENT_WINDOW
    const { health, cancelContract } = judgeHealth({
      oldestWaitingSeconds: standing.oldestWaitingSeconds,
      p95Ms: window.p95Ms,
      // the p95 of a few calls is one of them
      usualP95Ms: window.calls < RATE_CALLS_MIN ? null : (pace.usualP95Ms.get(standing.type) ?? null),
      retries: { count: window.retries, calls: window.items },
      deadLetters: standing.deadLetters,
      ...(cancels.get(standing.type) ?? NO_CANCEL),
      ledgerRowsMissing: missing.get(standing.type) ?? 0,
      uncertain: { count: standing.uncertain, calls: standing.withOutcome },
      casesOpenOver24h: standing.casesOpenOver24h,
      touchesMoney: type?.touches.includes('money') ?? false,
      owner: type?.owner ?? null,
    })
    return {
      type: standing.type,
      countsSensitive: areCountsSensitive(type),
      verdict: worst([...health, ...cancelContract]),
      figures: health,
      cancelContract,
    }
  })
}

/**
 * The figures are the caller's tenant's; call times and retries are those of the whole service, as the provider behind a type
 * is the same for all.
 */
export const healthReport = async (
  { database, types }: Pick<ServiceContext, 'database' | 'types'>,
  { tenantId }: Pick<Principal, 'tenantId'>,
): Promise<HealthReportView> =>
  database.query(async (connection) => {
    const judged = await judgeTenant(connection, types, tenantId, await readPace(connection))
    return { generatedAt: await readNow(connection), types: judged }
  })
