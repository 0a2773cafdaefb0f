import type { Bench } from '../harness/bench.ts'
import { interleave, short } from '../harness/interleave.ts'
import { CONNECTIONS, SUBMISSION, startLoad } from '../harness/load.ts'
import { startPart } from '../harness/part.ts'
import { atLeast, judge } from '../harness/result.ts'
import { startApi } from '../harness/service.ts'
import { median, ratiosOf } from '../harness/statistics.ts'

const WHAT = `POST /operations, 1 item, ${CONNECTIONS} connections`
/** Connections to the database, in each server; the api's default. */
const POOL = 10

export const submit: Bench = {
  id: 'B1',
  load: `${CONNECTIONS} connections that send one operation of one item after another to one api process, without a worker`,
  async run({ quick, server, closers, say }) {
    const ours = await server.open(closers, 'b1', { migrated: true })
    const bare = await server.open(closers, 'b1_bare', { migrated: false })
    await bare.sql`
      create table bare_operations (id uuid primary key, type text not null, status text not null, items jsonb not null,
        created_at timestamptz not null default clock_timestamp())`
    const boss = await server.open(closers, 'b1_boss', { migrated: false })
    const api = await startApi(closers, { databaseUrl: ours.url })
    const bareApi = await startPart(closers, 'limits/bare-api.ts', { databaseUrl: bare.url, connections: POOL })
    const bossApi = await startPart(closers, 'peers/pg-boss-api.ts', { databaseUrl: boss.url, connections: POOL })
    const load = await startLoad(closers)
    const seconds = quick ? 1 : 6
    const post = (url: unknown) => () => load.run({ url: String(url), seconds, status: 202, requests: [SUBMISSION] })
    const rates = await interleave(
      { opledger: post(api.url), bare: post(bareApi.ready), 'pg-boss': post(bossApi.ready) },
      { rounds: quick ? 1 : 7, settle: server.settle, say },
    )
    const figures = Object.entries(rates).map(([name, values]) => `${name} ${short(median(values))}/s`)
    const absolute = figures.join(', ')
    return {
      results: [
        judge({
          id: 'B1',
          what: WHAT,
          against: 'bare Fastify with one INSERT',
          goal: atLeast(1.5),
          ratios: ratiosOf(rates.opledger, rates.bare),
          absolute,
          note: load.describe(),
        }),
        judge({
          id: 'B1',
          what: WHAT,
          against: 'pg-boss `send` behind Fastify',
          goal: atLeast(4),
          ratios: ratiosOf(rates.opledger, rates['pg-boss']),
          absolute,
          note: load.describe(),
        }),
      ],
      chart: {
        title: 'Accepting one operation a request',
        unit: 'requests/s',
        bars: [
          { label: 'opledger', value: median(rates.opledger), kind: 'opledger' },
          { label: 'Fastify, one INSERT', value: median(rates.bare), kind: 'limit' },
          { label: 'Fastify, pg-boss send', value: median(rates['pg-boss']), kind: 'peer' },
        ],
      },
    }
  },
}
