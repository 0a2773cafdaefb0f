/** Case 15: the connection dies at the very write that ends the last attempt. Nothing stays locked for good. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit } from '../support/processes.ts'
import { expectConserved, openTestService, PROCESSES_MS, type TestService, untilStatus } from '../support/service.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openTcpProxy, type Verdict } from '../support/tcp-proxy.ts'
import { openWorkerFleet } from '../support/worker-process.ts'

let effects: EffectServer
let service: TestService
// one shard, one worker slot, one attempt: what waits behind it has nowhere else to go
const file = writeTypeFile([
  grantType(
    'grant',
    { effect_key: 'grant:{input.target}', retry: { max_attempts: 1, base_ms: 50, max_ms: 100 } },
    { lookup: grantLookup(100), on_absent: 'retry' },
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

const submit = (target: string, mode: string, change = {}) =>
  service.submit('grant', [{ key: 'a', input: { target, mode } }], change)
const deadLetters = (id: string) =>
  service.database.query(
    ({ sql }) => sql<{ reason: string; attempts: number }>`
      select reason_code as reason, attempts from dead_letters where operation_id = ${id}::uuid`,
  )

describe.each<{ verdict: Verdict; when: string }>([
  { verdict: 'cut', when: 'before the server sees it' },
  { verdict: 'lose-reply', when: 'after the server carried it out' },
])(
  'the write of the failure of a last attempt whose connection dies $when',
  { timeout: PROCESSES_MS },
  ({ verdict }) => {
    it('ends as a dead letter; the slot, the key and who waits for it go on (case 15)', async () => {
      let deaths = 0
      const proxy = await openTcpProxy(service.url, (statement) => {
        // the one statement that files dead letters is the write of a final failure
        if (deaths > 0 || !statement.includes('into dead_letters')) return 'pass'
        deaths++
        return verdict
      })
      const fleet = openWorkerFleet({
        databaseUrl: proxy.url,
        typeFiles: [file.file],
        env: { EFFECTS_URL: effects.url },
      })
      try {
        const target = `last-${verdict}`
        const { id } = await submit(target, 'busy')
        const dependent = await submit(`${target}-dependent`, 'ok', { after: [id], afterWhen: 'settled' })
        const sameKey = await submit(target, 'ok')
        const worker = await fleet.start({ concurrency: 1 })
        const view = await untilStatus(service, id, 'failed')
        expect(deaths).toBe(1)
        expect(view.counts).toMatchObject({ failed: 1, uncertain: 0, inFlight: 0 })
        expect(await deadLetters(id)).toMatchObject([{ attempts: 1 }])
        // whoever waited for the operation, for the effect key, or for the one slot, had its turn
        await untilStatus(service, dependent.id, 'succeeded')
        expect((await untilStatus(service, sameKey.id, ['succeeded', 'failed'])).status).toBe('succeeded')
        for (const one of [id, dependent.id, sameKey.id]) await expectConserved(service, one)
        const [open] = await service.database.query(
          ({ sql }) => sql<{ leased: number; intents: number }>`
          select (select count(*)::int from operation_shards where state = 'leased') as leased,
            (select count(*)::int from effects where state = 'intent') as intents`,
        )
        expect(open).toEqual({ leased: 0, intents: 0 })
        expect(worker.child.exitCode).toBeNull()
        worker.kill('SIGTERM')
        expect(await waitForExit(worker.child)).toEqual({ code: 0, signal: null })
      } finally {
        await fleet.stop()
        await proxy.close()
      }
    })
  },
)
