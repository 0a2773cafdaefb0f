import type { Bench } from '../harness/bench.ts'
import { openClaims } from '../harness/claims.ts'
import { interleave, short } from '../harness/interleave.ts'
import { SUBMISSION, startLoad } from '../harness/load.ts'
import { plantFinished, plantQueued } from '../harness/planted.ts'
import { atMost, judge } from '../harness/result.ts'
import { startApi } from '../harness/service.ts'
import { median, ratiosOf } from '../harness/statistics.ts'

const FINISHED = 3_000_000
const QUEUED = 100_000
/** What the empty database has to have for its claims. */
const SOME = 4_000
const CLAIMS = 300

const inverse = (values: readonly number[]): number[] => values.map((value) => 1 / value)

export const largeTables: Bench = {
  id: 'B7',
  load: '3 million finished operations, 10 million effects and ledger rows and 100,000 queued operations, beside a database with next to nothing',
  async run({ quick, server, closers, say }) {
    const part = quick ? 100 : 1
    const empty = await server.open(closers, 'b7_empty', { migrated: true })
    const full = await server.open(closers, 'b7_full', { migrated: true })
    await plantFinished(full.sql, FINISHED / part, say)
    await plantQueued(full.sql, QUEUED)
    await plantQueued(empty.sql, SOME)
    for (const { sql } of [full, empty]) await sql`vacuum analyze`
    const rounds = quick ? 1 : 7
    const claims = { empty: openClaims(closers, empty.url), full: openClaims(closers, full.url) }
    const times = await interleave(
      { empty: () => claims.empty.run(CLAIMS), full: () => claims.full.run(CLAIMS) },
      { rounds, settle: server.settle, say },
    )
    const api = {
      empty: await startApi(closers, { databaseUrl: empty.url }),
      full: await startApi(closers, { databaseUrl: full.url }),
    }
    const load = await startLoad(closers)
    const seconds = quick ? 1 : 6
    const post = (url: string) => () => load.run({ url, seconds, status: 202, requests: [SUBMISSION] })
    const rates = await interleave(
      { empty: post(api.empty.url), full: post(api.full.url) },
      { rounds, settle: server.settle, say },
    )
    return {
      results: [
        judge({
          id: 'B7',
          what: 'Claim of a shard and its window, large tables',
          against: 'the same on an empty database',
          goal: atMost(1.3),
          ratios: ratiosOf(times.full, times.empty),
          absolute: `large ${short(median(times.full))} ms, empty ${short(median(times.empty))} ms`,
        }),
        judge({
          id: 'B7',
          what: 'Time of a POST, large tables',
          against: 'the same on an empty database',
          goal: atMost(1.3),
          ratios: ratiosOf(inverse(rates.full), inverse(rates.empty)),
          absolute: `large ${short(median(rates.full))}/s, empty ${short(median(rates.empty))}/s`,
          note: load.describe(),
        }),
      ],
      chart: null,
    }
  },
}
