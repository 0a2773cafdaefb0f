/** Case 23: processes whose wall clock is wrong by an hour. Every stamp is the database's, and nothing is due too early or late. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { eventually, openTestService, PROCESSES_MS, type TestService, untilStatus } from '../support/service.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const HOUR_MS = 3_600_000
/** Far below the shift, and far above what a busy machine needs for a test. */
const NEAR_SECONDS = 1_200

/** From its import on, a process believes that it is so much later; timers go on as they are, as on a host with a wrong clock. */
const shiftedClock = (shiftMs: number): string =>
  `data:text/javascript,${encodeURIComponent(`
    const RealDate = Date
    globalThis.Date = class Date extends RealDate {
      constructor(...given) { super(...(given.length === 0 ? [RealDate.now() + ${shiftMs}] : given)) }
      static now() { return RealDate.now() + ${shiftMs} }
    }`)}`
const file = writeTypeFile([
  grantType('grant', { idempotency_key: 'optional' }, { lookup: grantLookup(100), on_absent: 'retry' }),
])
let effects: EffectServer
let service: TestService
beforeAll(async () => {
  effects = await startEffectServer()
  service = await openTestService({ typeFiles: [file.file], env: { EFFECTS_URL: effects.url } })
})
afterAll(async () => {
  await service.close()
  await effects.close()
  file.remove()
})

/** Every stored time that is farther from the database's clock than any of them may be. */
const farStamps = async (): Promise<string[]> => {
  const columns = await service.database.query(
    ({ sql }) => sql<{ table: string; column: string }>`
      select table_name as table, column_name as column from information_schema.columns c
      where table_schema = 'public' and data_type = 'timestamp with time zone'
        and exists (select from pg_class t where t.relname = c.table_name and t.relkind in ('r', 'p') and not t.relispartition)`,
  )
  const far: string[] = []
  for (const { table, column } of columns) {
    // due_at of a case and expiry of a preflight are meant for later; what a client asked for is its own
    if (['due_at', 'expires_at', 'run_after', 'deadline_at'].includes(column)) continue
    const rows = await service.database.query(
      ({ sql }) => sql<{ off: number }>`
      select (xpath('/row/n/text()', query_to_xml(format(
        'select coalesce(max(abs(extract(epoch from %I - now()))), 0)::int as n from %I', ${column}::text, ${table}::text),
        false, true, '')))[1]::text::int as off`,
    )
    if ((rows[0]?.off ?? 0) > NEAR_SECONDS) far.push(`${table}.${column} ${rows[0]?.off} s`)
  }
  return far
}

describe.each([-HOUR_MS, HOUR_MS])(
  'an api and a worker whose clock is off by %i ms',
  { timeout: PROCESSES_MS },
  (shift) => {
    it('store the stamps of the database, and run, retry, look up and tell as if it were right (case 23)', async () => {
      const told: { at: number; body: string }[] = []
      const receiver = createServer(async (request, response) => {
        let body = ''
        for await (const chunk of request) body += String(chunk)
        told.push({ at: Number(request.headers['webhook-timestamp']), body })
        response.end()
      }).listen(0, '127.0.0.1')
      await once(receiver, 'listening')
      const env = {
        EFFECTS_URL: effects.url,
        NODE_OPTIONS: `--import ${shiftedClock(shift)}`,
        OPLEDGER_WEBHOOK_SECRET: `whsec_${Buffer.alloc(32, 'a').toString('base64')}`,
        OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'allow',
      }
      const fleet: WorkerFleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [file.file], env })
      let api: ApiProcess | null = null
      try {
        api = await startApi({ databaseUrl: service.url, typeFiles: [file.file], env })
        await fleet.start()
        const url = api.url
        const post = async (body: object) => {
          const response = await fetch(`${url}/operations`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ type: 'grant', ...body }),
          })
          expect(response.status).toBe(202)
          const text = await response.json()
          return text as { id: string; created_at: string }
        }
        const uuid = (id: string) => id.replace(/^op_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
        const key = (name: string) => `${name}${shift}`
        const { port } = receiver.address() as AddressInfo
        const now = await post({
          callback_url: `http://127.0.0.1:${port}/`,
          items: [
            { key: key('ok'), input: { mode: 'ok' } },
            { key: key('busy'), input: { mode: 'busy_once' } },
            { key: key('lost'), input: { mode: 'reset_once' } },
          ],
        })
        expect(Math.abs(Date.parse(now.created_at) - Date.now())).toBeLessThan(NEAR_SECONDS * 1_000)
        await untilStatus(service, uuid(now.id), 'succeeded')
        // an hour off, this would run at once or in two hours
        const soon = await post({
          run_after: new Date(Date.now() + 2_000).toISOString(),
          items: [{ key: key('soon'), input: {} }],
        })
        const later = await post({
          run_after: new Date(Date.now() + HOUR_MS / 2).toISOString(),
          items: [{ key: key('later'), input: {} }],
        })
        const view = await untilStatus(service, uuid(soon.id), 'succeeded')
        expect(Date.parse(view.startedAt ?? '')).toBeGreaterThanOrEqual(Date.parse(view.runAfter ?? ''))
        expect((await service.view(uuid(later.id))).status).toBe('pending')
        // a deadline that lies ahead does not cancel
        const bound = await post({
          deadline_at: new Date(Date.now() + HOUR_MS / 2).toISOString(),
          items: [{ key: key('bound'), input: {} }],
        })
        await untilStatus(service, uuid(bound.id), 'succeeded')
        await eventually('the webhook came', () => told.length === 1)
        expect(Math.abs((told[0]?.at ?? 0) - Date.now() / 1_000)).toBeLessThan(NEAR_SECONDS)
        expect(await farStamps()).toEqual([])
      } finally {
        await fleet.stop()
        await api?.kill()
        receiver.close()
      }
    })
  },
)
