/** BullMQ on a Redis that writes its log to disk each second: a promise that is weaker than a commit, and is not counted against it. */
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { servePart } from '../harness/serve-part.ts'
import { openCount, openJob, type PeerSettings } from './job.ts'

const QUEUE = 'work'
const ADD_AT_A_TIME = 5_000

await servePart<PeerSettings>(async (settings) => {
  if (settings.redisPort === null) throw new Error('there is no Redis')
  const job = openJob(settings)
  // a worker asks for null: it waits for Redis as long as it takes
  const connection = new Redis({ host: '127.0.0.1', port: settings.redisPort, maxRetriesPerRequest: null })
  const queue = new Queue(QUEUE, { connection, defaultJobOptions: { removeOnComplete: true } })
  return {
    calls: {
      async enqueue(jobs: number) {
        for (let from = 0; from < jobs; from += ADD_AT_A_TIME) {
          const targets = Array.from({ length: Math.min(ADD_AT_A_TIME, jobs - from) }, (_, n) => from + n)
          await queue.addBulk(targets.map((target) => ({ name: 'work', data: { target } })))
        }
      },
      /** Jobs a second. */
      async work(jobs: number): Promise<number> {
        const count = openCount()
        const finished = count.expect(jobs)
        const startedAt = performance.now()
        const worker = new Worker<{ target: number }>(QUEUE, ({ data }) => job.one(data.target), {
          connection,
          concurrency: settings.concurrency,
        })
        worker.on('completed', () => count.done())
        worker.on('failed', (_, error) => count.fail(error))
        worker.on('error', count.fail)
        await finished
        const tookMs = performance.now() - startedAt
        await worker.close()
        return jobs / (tookMs / 1_000)
      },
    },
    async close() {
      await queue.close()
      await connection.quit()
      await job.close()
    },
  }
})
