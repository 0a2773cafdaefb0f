import { request } from 'undici'
import type { Bench } from '../harness/bench.ts'
import { short } from '../harness/interleave.ts'
import { canWatchMemory, growth, watchMemory } from '../harness/memory.ts'
import { createTargets } from '../harness/peers.ts'
import { atMost, judge, type Result, skipped } from '../harness/result.ts'
import { startApi, startWorker } from '../harness/service.ts'

const LIMIT_MB = 250
/** Above this the second half of a watch has grown over the first, and does not only breathe. */
const FLAT = 1.15
const WHAT = {
  worker: 'Memory of the worker, operation of 1,000,000 items',
  api: 'Memory of the api, upload of 1,000,000 items',
  download: 'Memory of the api, download of their ledger',
}

export const memory: Bench = {
  id: 'B8',
  load: 'an upload of 1,000,000 items, their run, and the download of their ledger as NDJSON; resident memory five times a second',
  async run({ quick, server, closers, say }) {
    const goal = atMost(1)
    const against = `${LIMIT_MB} MB`
    if (!canWatchMemory()) {
      const reason = 'there is no /proc to read the memory of a process from'
      return {
        results: Object.values(WHAT).map((what) => skipped({ id: 'B8', what, against, goal, reason })),
        chart: null,
      }
    }
    const count = quick ? 20_000 : 1_000_000
    const targets = 100_000
    const database = await server.open(closers, 'b8', { migrated: true })
    await createTargets(database.sql, targets)
    const api = await startApi(closers, { databaseUrl: database.url })
    const worker = await startWorker(closers, { databaseUrl: database.url })

    const line = (what: string, seen: readonly number[]): Result => {
      const most = Math.max(...seen)
      const grown = growth(seen)
      say(`${what}: ${short(most)} MB at most, second half ${short(grown)} × the first`)
      const result = judge({
        id: 'B8',
        what,
        against,
        goal,
        ratios: [most / LIMIT_MB],
        runs: seen.length,
        absolute: `at most ${short(most)} MB, from ${short(seen[0] ?? 0)} MB; second half ${short(grown)} × the first`,
      })
      return { ...result, met: result.met && grown <= FLAT, note: `flat: the second half at most ${FLAT} × the first` }
    }

    const uploading = watchMemory(api.pid)
    const id = await api.draft('bench-update', count, (n) => ({ key: `t${n}`, input: { target: n % targets } }))
    const upload = line(WHAT.api, uploading.stop())
    const running = watchMemory(worker.pid)
    await api.start(id)
    await api.settled(id, 'succeeded')
    const run = line(WHAT.worker, running.stop())
    const downloading = watchMemory(api.pid)
    const lines = await countLines(`${api.url}/operations/${id}/ledger`)
    const download = line(WHAT.download, downloading.stop())
    if (lines !== count) throw new Error(`the ledger of ${count} items has ${lines} lines`)
    return { results: [run, upload, download], chart: null }
  },
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
