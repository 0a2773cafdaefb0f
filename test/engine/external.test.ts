import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { OperationView } from '../../src/services/views.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { expectConserved, openTestService, type TestService, untilStatus } from '../support/service.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

/** Nobody listens on the discard port of the loopback: a connection is refused before a byte is written. */
const REFUSED_URL = 'http://127.0.0.1:9'

let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
const file = writeTypeFile([
  grantType('grant'),
  grantType('grant-slowly', { retry: { max_attempts: 3, base_ms: 1_000, max_ms: 2_000 } }),
  grantType('grant-refused', {}, { request: { url: '{env.REFUSED_URL}/grants', timeout_ms: 900 } }),
])

beforeAll(async () => {
  effects = await startEffectServer()
  const env = { EFFECTS_URL: effects.url, REFUSED_URL }
  service = await openTestService({ typeFiles: [file.file], env })
  fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [file.file], env })
  await fleet.start()
})
afterAll(async () => {
  await fleet.stop()
  await service.close()
  await effects.close()
  file.remove()
})

const run = async (type: string, modes: string[]): Promise<OperationView> => {
  const { id } = await service.submit(
    type,
    modes.map((mode) => ({ key: mode, input: { mode } })),
  )
  const view = await untilStatus(service, id, ['succeeded', 'partially_succeeded', 'failed', 'reconciliation_required'])
  await expectConserved(service, id)
  return view
}

describe('an external type through a real worker', () => {
  it('case 43, case 45, case 65: each answer has its outcome, and what is unknown is uncertain after one request', async () => {
    const expected = {
      ok: { state: 'applied', failureClass: null, requests: 1, applied: 1 },
      already: { state: 'skipped', failureClass: null, requests: 1, applied: 0 },
      reject: { state: 'failed', failureClass: 'validation_rejected', requests: 1, applied: 0 },
      conflict: { state: 'failed', failureClass: 'conflict', requests: 1, applied: 0 },
      forbidden: { state: 'failed', failureClass: 'policy_denied', requests: 1, applied: 0 },
      busy: { state: 'failed', failureClass: 'transient', requests: 3, applied: 0 },
      busy_once: { state: 'applied', failureClass: null, requests: 2, applied: 1 },
      apply_then_hang: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 1 },
      apply_then_reset: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 1 },
      error_before_apply: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 0 },
      error_after_apply: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 1 },
      never_answer: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 0 },
      reset: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 0 },
      trickle: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 1 },
      truncate: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 1 },
      redirect: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 0 },
      odd: { state: 'uncertain', failureClass: 'ambiguous_effect', requests: 1, applied: 1 },
    }
    const { id, status, counts, failures } = await run('grant', Object.keys(expected))
    const items = await service.items(id)
    const seen = Object.fromEntries(
      [...items].map(([key, { state, failureClass }]) => {
        const { requests, applied } = effects.entry(`grant:${key}`)
        return [key, { state, failureClass, requests, applied }]
      }),
    )
    expect(seen).toEqual(expected)
    expect(status).toBe('reconciliation_required')
    expect(counts).toEqual({ total: 17, applied: 2, skipped: 1, failed: 4, uncertain: 10, unprocessed: 0, inFlight: 0 })
    expect(failures).toEqual({ conflict: 1, policy_denied: 1, transient: 1, validation_rejected: 1 })
    expect(items.get('ok')?.effectRef).toBe('grant-grant:ok')
    expect(items.get('reject')?.reasonCode).toBe('NO_SUCH_USER')

    const cases = await service.cases(id)
    const uncertain = [...items.values()].filter((item) => item.state === 'uncertain')
    expect(cases.map((found) => found.itemKey).sort()).toEqual(uncertain.map((item) => item.key).sort())
    expect(new Set(cases.map((found) => `${found.cause} ${found.status}`))).toEqual(
      new Set(['send_outcome_unknown open']),
    )
  })

  it('attempts are bounded: the item becomes a dead letter of one fingerprint, whatever its key', async () => {
    const { id } = await service.submit('grant', [
      { key: 'busy-a', input: { mode: 'busy' } },
      { key: 'busy-b', input: { mode: 'busy' } },
      { key: 'fine', input: { mode: 'ok' } },
    ])
    expect((await untilStatus(service, id, 'partially_succeeded')).counts).toMatchObject({ applied: 1, failed: 2 })
    const letters = await service.database.query(
      ({ sql }) => sql<{ item_key: string; attempts: number; failure_class: string; fingerprint: string }>`
        select item_key, attempts, failure_class, fingerprint from dead_letters where operation_id = ${id}::uuid
        order by item_key`,
    )
    expect(letters).toMatchObject([
      { item_key: 'busy-a', attempts: 3, failure_class: 'transient' },
      { item_key: 'busy-b', attempts: 3, failure_class: 'transient' },
    ])
    expect(letters[0]?.fingerprint).toMatch(/^[0-9a-f]{32}$/)
    expect(letters[1]?.fingerprint).toBe(letters[0]?.fingerprint)
    const attempts = (await service.ledger(id)).filter((entry) => entry.itemKey === 'busy-a')
    expect(attempts.map((entry) => [entry.attempt, entry.state, entry.source])).toEqual([
      [1, 'failed', 'worker'],
      [2, 'failed', 'worker'],
      [3, 'failed', 'worker'],
    ])
    await expectConserved(service, id)
  })

  it('a refused connection sent nothing: it is tried again, and never uncertain', async () => {
    const { id, status, counts } = await run('grant-refused', ['ok'])
    expect({ status, counts }).toMatchObject({ status: 'failed', counts: { failed: 1, uncertain: 0 } })
    const ledger = await service.ledger(id)
    expect(ledger.map((entry) => [entry.attempt, entry.failureClass, entry.reasonCode])).toEqual(
      [1, 2, 3].map((attempt) => [attempt, 'transient', 'CONNECTION_REFUSED']),
    )
    expect(await service.cases(id)).toEqual([])
  })

  it('case 57: a retry is due when its backoff says so, by the database clock', async () => {
    const { id } = await service.submit('grant-slowly', [{ key: 'waits', input: { mode: 'busy' } }])
    const due: string[] = []
    const final = await (async () => {
      for (;;) {
        const view = await service.view(id)
        const item = (await service.items(id)).get('waits')
        if (item?.retryAt && !due.includes(item.retryAt)) due.push(item.retryAt)
        if (view.status === 'failed') return view
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
    })()
    expect(final.counts.failed).toBe(1)
    const gaps = await service.database.query(
      ({ sql }) => sql<{ attempt: number; gap_ms: number }>`
        select attempt, (extract(epoch from observed_at - lag(observed_at) over (order by seq)) * 1000)::float8 as gap_ms
        from ledger_entries where operation_id = ${id}::uuid order by seq`,
    )
    expect(gaps.map((row) => row.attempt)).toEqual([1, 2, 3])
    // full jitter: at most 1 s, then at most 2 s, and never before the time that was written down
    expect(due.length).toBeGreaterThanOrEqual(1)
    const late = await service.database.query(
      ({ sql }) => sql<{ early: boolean }>`
        select l.observed_at < ${due.at(-1) ?? ''}::timestamptz as early from ledger_entries l
        where operation_id = ${id}::uuid order by seq desc limit 1`,
    )
    expect(late).toEqual([{ early: false }])
  })

  it('case 49: an operation whose last item waits for its retry is not final', async () => {
    const { id } = await service.submit('grant-slowly', [
      { key: 'first', input: { mode: 'ok' } },
      { key: 'last', input: { mode: 'busy_once' } },
    ])
    const seen = new Set<string>()
    for (;;) {
      const view = await service.view(id)
      const item = (await service.items(id)).get('last')
      if (item?.retryAt) seen.add((await service.view(id)).status)
      if (view.status === 'succeeded') break
      expect(view.status).toMatch(/pending|running/)
    }
    expect(await service.view(id)).toMatchObject({
      status: 'succeeded',
      counts: { applied: 2, failed: 0 },
      failures: {},
    })
    for (const status of seen) expect(status).toMatch(/running|succeeded/)
  })
})
