/**
 * pg-boss at its fastest: several loops that fetch a batch, do it as one, and complete it as one. Its own `work()` waits for
 * its polling interval between two batches, half a second at least; these loops do not.
 */
import { PgBoss } from 'pg-boss'
import { servePart } from '../harness/serve-part.ts'
import { openJob, type PeerSettings } from './job.ts'

interface Settings extends PeerSettings {
  loops: number
  batch: number
}

const QUEUE = 'work'
const INSERT_AT_A_TIME = 5_000

await servePart<Settings>(async ({ loops, batch, ...settings }) => {
  const job = openJob(settings)
  const boss = new PgBoss({ connectionString: settings.databaseUrl, max: loops + 2 })
  boss.on('error', (error) => {
    throw error
  })
  await boss.start()
  await boss.createQueue(QUEUE)
  return {
    calls: {
      async enqueue(jobs: number) {
        for (let from = 0; from < jobs; from += INSERT_AT_A_TIME) {
          const targets = Array.from({ length: Math.min(INSERT_AT_A_TIME, jobs - from) }, (_, n) => from + n)
          await boss.insert(
            QUEUE,
            targets.map((target) => ({ data: { target } })),
          )
        }
      },
      /** Jobs a second. */
      async work(jobs: number): Promise<number> {
        let left = jobs
        const startedAt = performance.now()
        await Promise.all(
          Array.from({ length: loops }, async () => {
            while (left > 0) {
              const taken = await boss.fetch<{ target: number }>(QUEUE, { batchSize: batch })
              if (taken.length === 0) return
              left -= taken.length
              await job.many(taken.map(({ data }) => data.target))
              await boss.complete(
                QUEUE,
                taken.map(({ id }) => id),
              )
            }
          }),
        )
        if (left > 0) throw new Error(`${left} jobs were not there`)
        return jobs / ((performance.now() - startedAt) / 1_000)
      },
    },
    async close() {
      await boss.stop({ graceful: false })
      await job.close()
    },
  }
})
