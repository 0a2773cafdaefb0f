import { request } from 'undici'
import type { Bench } from '../harness/bench.ts'
import { short } from '../harness/interleave.ts'
import { canWatchMemory, growth, watchMemory } from '../harness/memory.ts'
import { createTargets } from '../harness/peers.ts'
import { atMost, judge, type Result, skipped } from '../harness/result.ts'
import { startApi, startWorker } from '../harness/service.ts'

const LIMIT_MB = 250
const GOAL = atMost(1)
const AGAINST = `${LIMIT_MB} MB`
/** Above this the second half of a watch has grown over the first, and does not only breathe. */
const FLAT = 1.15
const WHAT = {
  worker: 'Memory of the worker, operation of 1,000,000 items',
  api: 'Memory of the api, upload of 1,000,000 items',
  download: 'Memory of the api, download of their ledger',
}

const PARTS = ['worker', 'api', 'download'] as const

export const memory: Bench = {
  id: 'B8',
  load: 'an upload of 1,000,000 items, their run, and the download of their ledger as NDJSON; resident memory five times a second',
  async run({ quick, server, closers, say }) {
    if (!canWatchMemory()) {
      const reason = 'there is no /proc to read the memory of a process from'
      return {
        results: Object.values(WHAT).map((what) => skipped({ id: 'B8', what, against: AGAINST, goal: GOAL, reason })),
        chart: null,
      }
    }
    const count = quick ? 20_000 : 1_000_000
    const database = await server.open(closers, 'b8', { migrated: true })
    await createTargets(database.sql, count)
    const api = await startApi(closers, { databaseUrl: database.url })
    const worker = await startWorker(closers, { databaseUrl: database.url })

    const rounds = quick ? 1 : 3
    const seen: Record<keyof typeof WHAT, number[][]> = { worker: [], api: [], download: [] }
    for (let round = 1; round <= rounds; round++) {
      const uploading = watchMemory(api.pid)
      const id = await api.draft('bench-update', count, (n) => ({ key: `t${n}`, input: { target: n } }))
      seen.api.push(uploading.stop())
      const running = watchMemory(worker.pid)
      await api.start(id)
      await api.settled(id, 'succeeded')
      seen.worker.push(running.stop())
      const downloading = watchMemory(api.pid)
      const lines = await countLines(`${api.url}/operations/${id}/ledger`)
      seen.download.push(downloading.stop())
      if (lines !== count) throw new Error(`the ledger of ${count} items has ${lines} lines`)
      for (const part of PARTS) {
        const megabytes = seen[part][round - 1] ?? []
        say(`round ${round} of ${rounds}: ${WHAT[part]}: ${short(Math.max(...megabytes))} MB at most`)
      }
    }
    return { results: PARTS.map((part) => judgeMemory(WHAT[part], seen[part])), chart: null }
  },
}

/** Nothing is warmed up: the worst of all rounds has to keep the limit, and each round has to be flat. */
const judgeMemory = (what: string, rounds: readonly number[][]): Result => {
  const most = rounds.map((seen) => Math.max(...seen))
  const grown = Math.max(...rounds.map(growth))
  const first = rounds[0]?.[0] ?? Number.NaN
  const result = judge({
    id: 'B8',
    what,
    against: AGAINST,
    goal: GOAL,
    ratios: most.map((megabytes) => megabytes / LIMIT_MB),
    absolute: `at most ${short(Math.max(...most))} MB, from ${short(first)} MB; second half ${short(grown)} × the first`,
    note: `each round is held against the limit, and is flat: its second half at most ${FLAT} × the first`,
  })
  return { ...result, met: Math.max(...most) <= LIMIT_MB && grown <= FLAT }
}

const NEWLINE = 0x0a

const countLines = async (url: string): Promise<number> => {
  const { statusCode, body } = await request(url, {
    headers: { accept: 'application/x-ndjson' },
    bodyTimeout: 300_000,
  })
  if (statusCode !== 200) throw new Error(`the ledger answered ${statusCode}`)
  let lines = 0
  for await (const chunk of body as AsyncIterable<Uint8Array>) for (const byte of chunk) if (byte === NEWLINE) lines++
  return lines
}
