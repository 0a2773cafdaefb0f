import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit } from '../support/processes.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet } from '../support/worker-process.ts'

const LEASE_SECONDS = 6
/** Longer than the time between two heartbeats. */
const CALL_MS = 2_600

let effects: EffectServer
let service: TestService
const file = writeTypeFile([
  grantType(
    'grant',
    { lease_seconds: LEASE_SECONDS },
    {
      request: {
        url: '{env.EFFECTS_URL}/grants',
        headers: { 'Idempotency-Key': '{effect_key}' },
        body: { mode: '{input.mode}', delay_ms: '{input.delay_ms}' },
        timeout_ms: 4_900,
      },
    },
  ),
])
beforeAll(async () => {
  effects = await startEffectServer()
  service = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
})
afterAll(async () => {
  await service.close()
  await effects.close()
  file.remove()
})

describe('a worker that is told to stop under load', { timeout: PROCESSES_MS }, () => {
  it('case 5, case 101: beats until its calls are home, gives its leases back, charges nothing and exits with 0', async () => {
    const fleet = openWorkerFleet({
      databaseUrl: service.url,
      typeFiles: [file.file],
      env: { EFFECTS_URL: effects.url },
    })
    try {
      const workers = [await fleet.start(), await fleet.start()]
      const items = Array.from({ length: 12 }, (_, i) => ({ key: `d-${i}`, input: { delay_ms: CALL_MS } }))
      const { id } = await service.submit('grant', items)
      const shard = async () => {
        const [row] = await service.database.query(
          ({ sql }) => sql<{ owner: string | null; expires: string | null }>`
            select lease_owner as owner, lease_expires_at as expires from operation_shards where operation_id = ${id}::uuid`,
        )
        if (!row) throw new Error('there is no such shard')
        return row
      }
      await effects.requestsSeen(4)
      const { owner: holder } = await shard()
      const first = workers.find((worker) => worker.id === holder)
      const second = workers.find((worker) => worker.id !== holder)
      if (!first || !second) throw new Error('nobody holds the shard')
      const leasedUntil = new Set<string | null>()
      first.kill('SIGTERM')
      const exited = waitForExit(first.child)
      await eventually('it drained', async () => {
        const { owner, expires } = await shard()
        if (owner === first.id) leasedUntil.add(expires)
        return first.child.exitCode !== null
      })
      expect(await exited).toEqual({ code: 0, signal: null })
      expect(leasedUntil.size).toBeGreaterThan(1)
      expect(first.output()).not.toContain('lease lost')

      const view = await untilStatus(service, id, 'succeeded')
      expect(view.counts).toMatchObject({ applied: 12, uncertain: 0 })
      // one entry an item, all from whoever called: nobody took over what was in flight
      const ledger = await service.ledger(id)
      expect(ledger.map((entry) => `${entry.source} ${entry.state}`)).toEqual(Array(12).fill('worker applied'))
      expect(new Set(ledger.map((entry) => entry.attempt))).toEqual(new Set([1]))
      expect(new Set(ledger.map((entry) => entry.workerId))).toEqual(new Set([first.id, second.id]))
      for (const { key } of items) expect(effects.entry(`grant:${key}`)).toMatchObject({ requests: 1, applied: 1 })
      const [row] = await service.database.query(
        ({ sql }) => sql<{ state: string }>`select state from workers where id = ${first.id}::uuid`,
      )
      expect(row?.state).toBe('gone')
      await expectConserved(service, id)
    } finally {
      await fleet.stop()
    }
  })

  it('case 101: killed at the end of its grace, what it did not finish is resumed and charged once', async () => {
    const fleet = openWorkerFleet({
      databaseUrl: service.url,
      typeFiles: [file.file],
      env: { EFFECTS_URL: effects.url },
    })
    try {
      const first = await fleet.start()
      const seen = Object.keys(effects.entries()).length
      const items = Array.from({ length: 8 }, (_, i) => ({ key: `k-${i}`, input: { delay_ms: CALL_MS } }))
      const { id } = await service.submit('grant', items)
      await eventually('calls are in the air', () => Object.keys(effects.entries()).length >= seen + 4)
      first.kill('SIGTERM')
      first.kill('SIGKILL')
      await waitForExit(first.child)
      await fleet.start()
      const view = await untilStatus(service, id, 'reconciliation_required')
      expect(view.counts.applied + view.counts.uncertain).toBe(8)
      for (const item of (await service.items(id)).values()) expect(item.attempt).toBe(1)
      for (const { key } of items) expect(effects.entry(`grant:${key}`).requests).toBeLessThanOrEqual(1)
      await expectConserved(service, id)
    } finally {
      await fleet.stop()
    }
  })
})
