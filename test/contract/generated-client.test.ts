import { execFile } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))

const types = writeTypeFile([grantType('grant', { idempotency_key: 'required' })])
const project = mkdtempSync(path.join(tmpdir(), 'opledger-client-'))
let database: TestDatabase
let effects: EffectServer
let api: ApiProcess
let workers: WorkerFleet

beforeAll(async () => {
  database = await createTestDatabase()
  effects = await startEffectServer()
  const process = { databaseUrl: database.url, typeFiles: [types.file], env: { EFFECTS_URL: effects.url } }
  workers = openWorkerFleet(process)
  ;[api] = await Promise.all([startApi(process), workers.start()])
})
afterAll(async () => {
  await workers?.stop()
  await api?.kill()
  await effects?.close()
  await database?.drop()
  types.remove()
  rmSync(project, { recursive: true })
})

/** The project of somebody else: the generated types, the sample, and the packages that it imports. */
const generate = async (): Promise<string> => {
  const schema = await openapiTS(new URL('../../openapi/openapi.json', import.meta.url))
  writeFileSync(path.join(project, 'schema.ts'), astToString(schema))
  writeFileSync(path.join(project, 'package.json'), JSON.stringify({ type: 'module' }))
  symlinkSync(here('../../node_modules'), path.join(project, 'node_modules'))
  const sample = path.join(project, 'sample-client.ts')
  copyFileSync(here('sample-client.ts.txt'), sample)
  return sample
}

const compile = (file: string): string[] => {
  const program = ts.createProgram([file], {
    target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    lib: ['lib.es2023.d.ts', 'lib.dom.d.ts'],
    types: ['node'],
    typeRoots: [path.join(project, 'node_modules/@types')],
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    rewriteRelativeImportExtensions: true,
    skipLibCheck: true,
  })
  const { diagnostics } = program.emit()
  return [...ts.getPreEmitDiagnostics(program), ...diagnostics].map(({ messageText, file: at, start }) => {
    const line = at && start !== undefined ? at.getLineAndCharacterOfPosition(start).line + 1 : 0
    return `${at?.fileName ?? ''}:${line} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`
  })
}

it('a client generated from the document compiles under strict and drives the service from end to end (case 89)', async () => {
  const sample = await generate()
  expect(compile(sample)).toEqual([])
  const { stdout } = await promisify(execFile)(process.execPath, [sample.replace(/ts$/, 'js'), api.url])
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
