/**
 * graphile-worker, as it comes and at its fastest: with `tuned`, jobs are fetched in batches (`localQueue`) and completed in
 * batches (`completeJobBatchDelay`).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import postgres from 'postgres'
import { servePart } from '../harness/serve-part.ts'
import { openCount, openJob, type PeerSettings } from './job.ts'

interface Settings extends PeerSettings {
  tuned: boolean
}

const ADD_AT_A_TIME = 5_000
const LOCAL_QUEUE = 500
const COMPLETE_DELAY_MS = 10
const LOOK_MS = 5
const silent = new Logger(() => () => {})

await servePart<Settings>(async ({ tuned, ...settings }) => {
  const job = openJob(settings)
  const sql = postgres(settings.databaseUrl, { max: 1, onnotice: () => {} })
  const utils = await makeWorkerUtils({ connectionString: settings.databaseUrl, logger: silent })
  await utils.migrate()
  const count = openCount()

  const start = () =>
    run({
      connectionString: settings.databaseUrl,
      logger: silent,
      noHandleSignals: true,
      taskList: {
        async work(payload) {
          await job.one((payload as { target: number }).target).catch((error: Error) => {
            count.fail(error)
            throw error
          })
          count.done()
        },
      },
      preset: {
        worker: {
          concurrentJobs: settings.concurrency,
          maxPoolSize: settings.concurrency + 2,
          ...(tuned && {
            localQueue: { size: LOCAL_QUEUE },
            completeJobBatchDelay: COMPLETE_DELAY_MS,
            failJobBatchDelay: 0,
          }),
        },
      },
    })

  let runner: Awaited<ReturnType<typeof start>> | null = null
  return {
    calls: {
      async enqueue(jobs: number) {
        for (let from = 0; from < jobs; from += ADD_AT_A_TIME) {
          const targets = Array.from({ length: Math.min(ADD_AT_A_TIME, jobs - from) }, (_, n) => from + n)
          await utils.addJobs(targets.map((target) => ({ identifier: 'work', payload: { target } })))
        }
      },
      /** Jobs a second, until each is done and none is left in the queue. */
      async work(jobs: number): Promise<number> {
        const finished = count.expect(jobs)
        const startedAt = performance.now()
        const running = await start()
        await finished
        while ((await sql`select from graphile_worker._private_jobs limit 1`).length > 0) await sleep(LOOK_MS)
        const tookMs = performance.now() - startedAt
        await running.stop()
        return jobs / (tookMs / 1_000)
      },
      /** A worker that waits for `addOne`. */
      async listen() {
        runner = await start()
      },
      /** When it was added, on the clock that all processes of a machine share, in ms. */
      async addOne(target: number): Promise<number> {
        const at = Number(process.hrtime.bigint()) / 1e6
        await utils.addJob('work', { target })
        return at
      },
    },
    async close() {
      await runner?.stop()
      await utils.release()
      await sql.end({ timeout: 1 })
      await job.close()
    },
  }
})
