import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { Json } from '../../src/domain/operation-type.ts'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { CALLBACK, SECRETS, signEvent } from '../support/callbacks.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { holdShard, untilWaiting } from '../support/races.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

/** Callbacks from end to end: a type file, an api and a worker as real processes, and a provider that does not answer. */
let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
let api: ApiProcess
const file = writeTypeFile([grantType('grant', {}, { callback: CALLBACK as Json, on_absent: 'retry' })])
const options = () => ({
  databaseUrl: service.url,
  typeFiles: [file.file],
  env: { EFFECTS_URL: effects.url, OPLEDGER_SECRET_CALLBACK: SECRETS[0] },
})

beforeAll(async () => {
  effects = await startEffectServer()
  service = await openTestService({
    typeFiles: [file.file],
    env: { EFFECTS_URL: effects.url },
    secrets: { CALLBACK: SECRETS[0] },
  })
  fleet = openWorkerFleet(options())
  ;[api] = await Promise.all([startApi(options()), fleet.start()])
})
afterAll(async () => {
  await fleet?.stop()
  await api?.kill()
  await service?.close()
  await effects?.close()
  file.remove()
})

const settled = (id: string, key: string) =>
  signEvent(id, { data: { reference: `grant:${key}`, status: 'settled', id: `theirs-${key}` } })
const post = async (
  signed: ReturnType<typeof signEvent>,
): Promise<{ status: number; body: Record<string, unknown> }> => {
  const answer = await fetch(`${api.url}/callbacks/grant`, {
    method: 'POST',
    headers: signed.headers,
    body: signed.body,
  })
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
}
const submitHanging = async (key: string): Promise<string> => {
  const { id } = await service.submit('grant', [{ key, input: { mode: 'apply_then_hang' } }])
  await untilStatus(service, id, 'reconciliation_required')
  return id
}

describe('a provider that applies, never answers, and calls back', { timeout: PROCESSES_MS }, () => {
  it('has the last word', async () => {
    const id = await submitHanging('hangs')
    expect(await post(settled('evt_1', 'hangs'))).toEqual({
      status: 202,
      body: {
        event_id: 'evt_1',
        outcome: 'applied',
        duplicate: false,
        operation_id: formatId('op', id),
        item_key: 'hangs',
      },
    })
    expect((await untilStatus(service, id, 'succeeded')).counts).toMatchObject({ applied: 1, uncertain: 0 })
    expect((await service.items(id)).get('hangs')).toMatchObject({ effectRef: 'theirs-hangs' })
    expect(effects.entry('grant:hangs')).toMatchObject({ requests: 1, applied: 1 })
    await expectConserved(service, id)
  })

  it('is heard although the api is killed between the insert and the judgement', async () => {
    const id = await submitHanging('killed')
    const held = await holdShard(service.url, { tenantId: 1, operationId: id, shard: 0 })
    const posted = post(settled('evt_2', 'killed')).catch(() => 'no answer')
    await untilWaiting(service.database, 1)
    await api.kill()
    expect(await posted).toBe('no answer')
    await held.commit()
    const outcome = async () => {
      const [row] = await service.database.query(
        ({ sql }) => sql<{ outcome: string | null }>`select outcome from callback_inbox where event_id = 'evt_2'`,
      )
      return row?.outcome
    }
    // the statement that waited for the lock may have been committed for the dead; its outcome was not
    expect(await outcome()).toBeNull()
    await eventually('the worker has judged it', async () => (await outcome()) === 'applied')
    await untilStatus(service, id, 'succeeded')
    expect(effects.entry('grant:killed')).toMatchObject({ requests: 1, applied: 1 })
    expect((await service.ledger(id)).filter((entry) => entry.source === 'callback')).toHaveLength(1)
    await expectConserved(service, id)

    api = await startApi(options())
    expect(await post(settled('evt_2', 'killed'))).toMatchObject({
      status: 202,
      body: { outcome: 'applied', duplicate: true },
    })
  })
})
