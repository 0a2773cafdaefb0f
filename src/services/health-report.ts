import { type HealthVerdict, judgeHealth, type Verdict } from '../domain/health.ts'
import {
  type CancelStanding,
  readCancelStandings,
  readLedgerRowsMissing,
  readNow,
  readTypeStandings,
} from '../storage/health.ts'
import { readTypeWindows, readUsualP95, SILENT_WINDOW } from '../storage/type-minutes.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'
import type { HealthReportView } from './views.ts'

/** p95 and retry rate are those of the last hour, judged against the week before it. */
const WINDOW_MINUTES = 60

const NO_CANCEL: CancelStanding = { cancelToFinalP95Seconds: null, effectsAfterCancel: 0 }

const worst = (judged: readonly HealthVerdict[]): Verdict =>
  (['alarm', 'ok'] as const).find((verdict) => judged.some((one) => one.verdict === verdict)) ?? 'no_data'

/**
 * Every installed type, and every one that the tenant's rows name, judged. The figures are the caller's tenant's; call
 * times and retries are those of the whole service, as the provider behind a type is the same for all.
 */
export const healthReport = async (
  { database, types }: Pick<ServiceContext, 'database' | 'types'>,
  { tenantId }: Pick<Principal, 'tenantId'>,
): Promise<HealthReportView> => {
  const installed = types.list().map((type) => type.name)
  return database.query(async (connection) => {
    const standings = await readTypeStandings(connection, tenantId, installed)
    const cancels = await readCancelStandings(connection, tenantId)
    const missing = await readLedgerRowsMissing(connection, tenantId)
    const windows = await readTypeWindows(connection, WINDOW_MINUTES)
    const usual = await readUsualP95(
      connection,
      standings.map((standing) => standing.type),
    )
    return {
      generatedAt: await readNow(connection),
      types: standings.map((standing) => {
        const type = types.get(standing.type)
        const window = windows.get(standing.type) ?? SILENT_WINDOW
        const { health, cancelContract } = judgeHealth({
          oldestWaitingSeconds: standing.oldestWaitingSeconds,
          p95Ms: window.p95Ms,
          usualP95Ms: usual.get(standing.type) ?? null,
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
          verdict: worst([...health, ...cancelContract]),
          figures: health,
          cancelContract,
        }
      }),
    }
  })
}
