/** Workers elsewhere, as the use cases see them: what a test does in their name. */
import type { OperationType } from '../../src/domain/operation-type.ts'
import type { Principal } from '../../src/services/principal.ts'
import type { ClaimWorkRequest, ReportWorkRequest, WorkResult } from '../../src/services/requests.ts'
import type { ClaimedWorkView, HandedItemView, ReportedWorkView, WorkBatchView } from '../../src/services/views.ts'
import { plantedType } from './planted-operation.ts'
import { principal, type TestService } from './service.ts'

export const CALL_TIMEOUT_MS = 500

/** A type whose items are run elsewhere, under leases of 30 s. The effect key of an item is its own key. */
export const remoteType = (name: string, figures: Partial<OperationType> = {}): OperationType =>
  plantedType(name, {
    concurrency: 2,
    retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 },
    executor: {
      kind: 'external',
      remote: true,
      callTimeoutMs: CALL_TIMEOUT_MS,
      send: () => Promise.reject(new Error('nobody here sends an item of a remote type')),
      lookup: null,
    },
    ...figures,
  })

export const applied = ({ effectKey, send }: HandedItemView): WorkResult => ({
  effectKey,
  send,
  outcome: { state: 'applied', effectRef: `ref:${effectKey}` },
  downstreamError: false,
  durationMs: 12,
})

export const said = (item: HandedItemView, outcome: WorkResult['outcome']): WorkResult => ({
  ...applied(item),
  outcome,
})

export interface RemoteWorker {
  /** Its token. */
  token: string
  claim(change?: Partial<ClaimWorkRequest>): Promise<WorkBatchView | null>
  /** A claim that must bring something. */
  take(change?: Partial<ClaimWorkRequest>): Promise<WorkBatchView>
  report(
    batch: Pick<WorkBatchView, 'lease'>,
    results: WorkResult[],
    change?: Partial<ReportWorkRequest>,
  ): Promise<ReportedWorkView>
}

export const claimRequest = (types: readonly OperationType[], change: Partial<ClaimWorkRequest> = {}) => ({
  worker: null,
  host: 'elsewhere',
  pid: 4_711,
  codeVersion: 'w1',
  types: types.map(({ name, version }) => ({ name, version })),
  maxItems: null,
  lostAnswer: false,
  leases: [],
  seconds: 0,
  signal: new AbortController().signal,
  ...change,
})

export const registerRemoteWorker = async (
  { services }: Pick<TestService, 'services'>,
  types: readonly OperationType[],
  who: Principal = principal,
): Promise<RemoteWorker> => {
  const ask = (change: Partial<ClaimWorkRequest>): Promise<ClaimedWorkView> =>
    services.claimWork(who, claimRequest(types, change))
  const { worker: token } = await ask({})
  const claim: RemoteWorker['claim'] = async (change = {}) => (await ask({ worker: token, ...change })).batch
  return {
    token,
    claim,
    async take(change) {
      const batch = await claim(change)
      if (!batch) throw new Error('there is no work')
      return batch
    },
    report: ({ lease }, results, change = {}) =>
      services.reportWork(who, {
        lease,
        results,
        maxItems: null,
        stopSeen: null,
        lostAnswer: false,
        inHand: [],
        ...change,
      }),
  }
}

/** The lease of every held shard of an operation runs out now. */
export const runOut = async ({ database }: Pick<TestService, 'database'>, operationId: string): Promise<void> => {
  await database.query(
    ({ sql }) => sql`
      update operation_shards set lease_expires_at = now() - interval '1 second'
      where operation_id = ${operationId}::uuid and state = 'leased'`,
  )
}
