/**
 * DBOS: workflows that each take a share of the targets, and a step a target, whose outcome DBOS keeps. Steps of a workflow are
 * started together and awaited together, as its rule of one order of steps asks for; many at a time, so that waiting for the
 * last of them does not show, and the connections of the job are the bound of what runs side by side.
 */
import { DBOS } from '@dbos-inc/dbos-sdk'
import { servePart } from '../harness/serve-part.ts'
import { openJob, type PeerSettings } from './job.ts'

const WORKFLOWS = 4
const STEPS_AT_A_TIME = 100

await servePart<PeerSettings>(async (settings) => {
  const job = openJob(settings)
  const workflow = DBOS.registerWorkflow(
    async (from: number, to: number) => {
      for (let next = from; next < to; next += STEPS_AT_A_TIME) {
        const targets = Array.from({ length: Math.min(STEPS_AT_A_TIME, to - next) }, (_, n) => next + n)
        const settled = await Promise.allSettled(
          targets.map((target) => DBOS.runStep(() => job.one(target), { name: `target-${target}` })),
        )
        const failed = settled.find((step) => step.status === 'rejected')
        if (failed) throw failed.reason
      }
    },
    { name: 'share' },
  )
  DBOS.setConfig({
    name: 'bench',
    systemDatabaseUrl: settings.databaseUrl,
    systemDatabasePoolSize: settings.concurrency + 4,
    logLevel: 'error',
    applicationVersion: '1',
  })
  await DBOS.launch()
  return {
    calls: {
      enqueue: () => undefined,
      /** Steps a second, from the start of the workflows to the end of the last. */
      async work(jobs: number): Promise<number> {
        const share = Math.ceil(jobs / WORKFLOWS)
        const startedAt = performance.now()
        const handles = await Promise.all(
          Array.from({ length: WORKFLOWS }, (_, n) =>
            DBOS.startWorkflow(workflow)(n * share, Math.min(jobs, (n + 1) * share)),
          ),
        )
        await Promise.all(handles.map((handle) => handle.getResult()))
        return jobs / ((performance.now() - startedAt) / 1_000)
      },
    },
    async close() {
      await DBOS.shutdown()
      await job.close()
    },
  }
})
