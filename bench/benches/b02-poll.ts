import type { Bench } from '../harness/bench.ts'
import { interleave, short } from '../harness/interleave.ts'
import { CONNECTIONS, type LoadRequest, startLoad } from '../harness/load.ts'
import { startPart } from '../harness/part.ts'
import { atLeast, judge } from '../harness/result.ts'
import { startApi } from '../harness/service.ts'
import { median, ratiosOf } from '../harness/statistics.ts'

const POOL = 10
/** Each connection polls operations of its own, so that no two polls at a time are for the same one. */
const OPERATIONS = CONNECTIONS * 20

export const poll: Bench = {
  id: 'B2',
  load: `${CONNECTIONS} connections that each poll 20 operations of their own in turn, from one api process`,
  async run({ quick, server, closers, say }) {
    const database = await server.open(closers, 'b2', { migrated: true })
    const api = await startApi(closers, { databaseUrl: database.url })
    const bareApi = await startPart(closers, 'limits/bare-api.ts', { databaseUrl: database.url, connections: POOL })
    const load = await startLoad(closers)
    const operations = await Promise.all(
      Array.from({ length: OPERATIONS }, () =>
        api.submit({ type: 'bench-update', items: [{ key: 'target-1', input: { target: 1 } }] }),
      ),
    )
    await database.sql`vacuum analyze`
    const uuid = (id: string): string => id.replace(/^op_/, '')
    const polls: LoadRequest[] = operations.map(({ id }) => ({ method: 'GET', path: `/operations/${id}` }))
    const bare: LoadRequest[] = operations.map(({ id }) => ({ method: 'GET', path: `/operations/${uuid(id)}` }))
    const conditional: LoadRequest[] = operations.map(({ id, version }) => ({
      method: 'GET',
      path: `/operations/${id}`,
      headers: { 'if-none-match': `"${version}"` },
    }))
    const seconds = quick ? 1 : 5
    const get = (url: unknown, status: number, requests: LoadRequest[]) => () =>
      load.run({ url: String(url), seconds, status, requests })
    const rates = await interleave(
      {
        opledger: get(api.url, 200, polls),
        bare: get(bareApi.ready, 200, bare),
        'not modified': get(api.url, 304, conditional),
      },
      { rounds: quick ? 1 : 7, settle: server.settle, say },
    )
    const absolute = Object.entries(rates)
      .map(([name, values]) => `${name} ${short(median(values))}/s`)
      .join(', ')
    return {
      results: [
        judge({
          id: 'B2',
          what: `GET /operations/{id}, ${CONNECTIONS} connections`,
          against: 'bare Fastify with one SELECT',
          goal: atLeast(1.5),
          ratios: ratiosOf(rates.opledger, rates.bare),
          absolute,
          note: load.describe(),
        }),
        judge({
          id: 'B2',
          what: 'The same with If-None-Match (304)',
          against: 'without',
          goal: atLeast(1),
          ratios: ratiosOf(rates['not modified'], rates.opledger),
          absolute,
          note: load.describe(),
        }),
      ],
      chart: {
        title: 'Polling an operation',
        unit: 'requests/s',
        bars: [
          { label: 'opledger', value: median(rates.opledger), kind: 'opledger' },
          { label: 'opledger, 304', value: median(rates['not modified']), kind: 'opledger' },
          { label: 'Fastify, one SELECT', value: median(rates.bare), kind: 'limit' },
        ],
      },
    }
  },
}
