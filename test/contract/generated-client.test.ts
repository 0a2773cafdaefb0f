import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'
import { type ClientProject, GENERATORS, openClientProject } from './client-project.ts'

// A database for each: what one client has granted, the other would find at its target already.
describe.each(GENERATORS)('a client generated from the document by $name', (generator) => {
  const types = writeTypeFile([grantType('grant', { idempotency_key: 'required' })])
  let database: TestDatabase
  let effects: EffectServer
  let api: ApiProcess
  let workers: WorkerFleet
  let project: ClientProject

  beforeAll(async () => {
    database = await createTestDatabase()
    effects = await startEffectServer()
    const process = { databaseUrl: database.url, typeFiles: [types.file], env: { EFFECTS_URL: effects.url } }
    workers = openWorkerFleet(process)
    ;[api] = await Promise.all([startApi(process), workers.start()])
    project = await openClientProject(generator)
  })
  afterAll(async () => {
    await workers?.stop()
    await api?.kill()
    await effects?.close()
    await database?.drop()
    types.remove()
    project?.remove()
  })

  it('compiles under strict and drives the service from end to end (case 89)', async () => {
    expect(project.diagnostics).toEqual([])
    const { stdout } = await promisify(execFile)(process.execPath, [project.script, api.url])
    expect(JSON.parse(stdout)).toEqual({
      sameId: true,
      status: 'partially_succeeded',
      counts: { total: 2, applied: 1, skipped: 0, failed: 1, uncertain: 0, unprocessed: 0, in_flight: 0 },
      total: 2,
      guarantee: 'no_new_sends',
      isComplete: true,
      items: [
        { key: 'granted', state: 'applied', failure: null, ref: 'grant-grant:granted' },
        { key: 'refused', state: 'failed', failure: 'validation_rejected/NO_SUCH_USER', ref: null },
      ],
      cancel: { status: 409, code: 'operation-already-final' },
      refusal: { status: 422, pointer: '/type' },
      case: { status: 'resolved', evidence: 'ticket 7', by: 'operator' },
      secondResolver: { status: 409, code: 'case-already-resolved' },
      reconciled: 'succeeded',
      listed: [true],
      types: ['grant', 'ledger-export'],
      limits: { concurrency: 4, cancel: 'no_new_sends' },
    })
  })
})
