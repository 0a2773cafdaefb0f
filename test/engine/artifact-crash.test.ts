/** Workers that die while they make an artifact. What is published is whole and one, and nothing is left of the rest. */
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type ArtifactService, openArtifactService } from '../support/artifacts.ts'
import { until, waitForExit } from '../support/processes.ts'
import { holdOperation } from '../support/races.ts'
import { expectConserved, PROCESSES_MS, principal, untilStatus } from '../support/service.ts'
import { artifactTypeFile } from '../support/service-artifact-type.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

/** Each death costs a lease, a start and a claim. */
const DEATHS_MS = 300_000

let made: ArtifactService
let fleet: WorkerFleet
let dataDir: string

beforeEach(async () => {
  made = await openArtifactService()
  dataDir = mkdtempSync(path.join(os.tmpdir(), 'opledger-data-'))
  fleet = openWorkerFleet({
    databaseUrl: made.service.url,
    typeFiles: [artifactTypeFile],
    env: { OPLEDGER_ARTIFACT_STORE: `file:${made.directory}`, OPLEDGER_DATA_DIR: dataDir },
  })
})
afterEach(async () => {
  await fleet.stop()
  await made.close()
  rmSync(dataDir, { recursive: true, force: true })
})

/** Published once, whole, with nothing uncertain and nothing left over. */
const expectPublished = async (id: string, chunks: number): Promise<void> => {
  const { service } = made
  const view = await untilStatus(service, id, 'succeeded')
  expect(view.counts).toMatchObject({ total: chunks + 1, applied: chunks + 1, uncertain: 0, failed: 0 })
  const text = Array.from({ length: chunks }, (_, part) => `${part}:0\n${part}:1\n${part}:2\n`).join('')
  expect(String(await made.download(id))).toBe(text)
  expect(await service.cases(id)).toEqual([])
  const artifact = await service.services.getArtifact(principal, id)
  // a worker's own janitor may be at it, too: the sweep is over when the first one of them is
  await until('nothing but the artifact is stored', async () => {
    await made.sweep()
    return made.stored().join() === `artifacts/1/${id}/${artifact.id}`
  })
  await expectConserved(service, id)
}

it('kill -9 while chunks are written: another worker writes what is missing', { timeout: PROCESSES_MS }, async () => {
  const gate = made.newGate()
  gate.set('wait-part-3')
  const { id } = await made.make('report', { chunks: 6, gate: gate.directory })
  const first = await fleet.start()
  await until('the chunk is being written', () => gate.has('started-part-3'))
  first.kill('SIGKILL')
  await waitForExit(first.child)
  gate.open('wait-part-3')
  await fleet.start()
  await expectPublished(id, 6)
  const [entry] = (await made.service.ledger(id)).filter(({ itemKey }) => itemKey === 'part-3')
  // the write that was lost is charged to nobody
  expect(entry).toMatchObject({ state: 'applied', attempt: 1, effectRef: expect.stringMatching(/\/3-2 size=/) })
})

describe('kill -9 between the assembly and its commit', { timeout: PROCESSES_MS }, () => {
  /** A worker is about to commit its publish: it has assembled the object, and waits for the key of the artifact. */
  const atTheCommit = async (chunks: number) => {
    const sql = postgres(made.service.url, { max: 1, onnotice: () => {} })
    await sql.unsafe('begin')
    await sql`select pg_advisory_xact_lock(hashtextextended(${`1:report:of ${chunks}`}, 0))`
    const { id } = await made.make('report', { chunks })
    const worker = await fleet.start()
    await until('the worker waits for the key', async () => {
      const rows = await made.service.database.query(
        ({ sql }) => sql`
          select 1 from pg_stat_activity where datname = current_database() and wait_event = 'advisory'`,
      )
      return rows.length === 1
    })
    expect(made.stored().filter((name) => name.startsWith(`artifacts/1/${id}/`))).toHaveLength(1)
    return {
      id,
      async kill() {
        worker.kill('SIGKILL')
        await waitForExit(worker.child)
      },
      async release() {
        await sql.unsafe('commit')
        await sql.end()
      },
    }
  }

  it('not committed: it is assembled again, and what the first one assembled is removed', async () => {
    const { id, kill, release } = await atTheCommit(4)
    await kill()
    await made.service.database.query(
      ({ sql }) => sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event = 'advisory'`,
    )
    await release()
    await fleet.start()
    await expectPublished(id, 4)
    const [entry] = (await made.service.ledger(id)).filter(({ itemKey }) => itemKey === 'publish')
    expect(entry).toMatchObject({ state: 'applied', attempt: 1 })
  })
})

it('kill -9 after the commit: it is published once, and another worker settles', {
  timeout: PROCESSES_MS,
}, async () => {
  const gate = made.newGate()
  gate.set('wait-part-0')
  const { id } = await made.make('report', { chunks: 5, gate: gate.directory })
  const worker = await fleet.start()
  await until('the chunk is being written', () => gate.has('started-part-0'))
  // a publish does not touch the operation; what comes after it does, and waits here
  const held = await holdOperation(made.service.url, id)
  gate.open('wait-part-0')
  const { database } = made.service
  const rows = () => database.query(({ sql }) => sql<{ id: string }>`select id from artifacts`)
  await until('it is published', async () => (await rows()).length === 1)
  await until('the worker waits for the operation', async () => {
    const waiting = await database.query(
      ({ sql }) => sql`
        select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
          and query ilike '%update operations%'`,
    )
    return waiting.length > 0
  })
  const published = await rows()
  worker.kill('SIGKILL')
  await waitForExit(worker.child)
  await held.commit()
  await fleet.start()
  await expectPublished(id, 5)
  expect(await made.service.services.getArtifact(principal, id)).toMatchObject({ id: published[0]?.id })
  expect((await made.service.ledger(id)).filter(({ itemKey }) => itemKey === 'publish')).toHaveLength(1)
})

it('case 19: a chunk that kills its process is a dead letter when its runs are used up; the publish fails', {
  timeout: DEATHS_MS,
}, async () => {
  const gate = made.newGate()
  gate.set('exit-part-1')
  const { id } = await made.make('report', { chunks: 4, gate: gate.directory })
  const workers = fleet.supervise()
  const view = await untilStatus(made.service, id, 'partially_succeeded', DEATHS_MS)
  expect(view.counts).toMatchObject({ applied: 3, failed: 2, uncertain: 0 })
  expect(view.failures).toEqual({ bug_suspected: 1, conflict: 1 })
  expect((await made.service.items(id)).get('part-1')).toMatchObject({
    failureClass: 'bug_suspected',
    reasonCode: 'WORKER_CRASH',
  })
  // two that nobody could know the cause of, and one for each attempt alone
  expect(workers.deaths()).toBeLessThanOrEqual(5)
  await expectConserved(made.service, id)
})
