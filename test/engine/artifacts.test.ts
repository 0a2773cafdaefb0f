import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { csvLine } from '../../src/domain/csv.ts'
import { formatId } from '../../src/domain/ids.ts'
import { LEDGER_COLUMNS, ledgerRow } from '../../src/domain/ledger-entry.ts'
import { bulkActions } from '../../src/maintenance/bulk-actions.ts'
import type { OperationView } from '../../src/services/views.ts'
import { type ArtifactService, openArtifactService } from '../support/artifacts.ts'
import { plantOperation } from '../support/planted-operation.ts'
import { until } from '../support/processes.ts'
import { expectConserved, principal, untilStatus } from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'

const NO_FILTER = {
  status: [],
  type: null,
  requestedBy: null,
  labels: {},
  createdAfter: null,
  createdBefore: null,
  replayOf: null,
}
const now = { reason: null, ifMatchVersion: null }
let made: ArtifactService
let engine: TestEngine

beforeAll(async () => {
  made = await openArtifactService()
  const { service, objects, types } = made
  engine = await startTestEngine({ url: service.url, types, objects, maintenance: false })
})
afterAll(async () => {
  await engine.drain()
  await made.close()
})

const ended = (id: string, status: OperationView['status'] = 'succeeded') => untilStatus(made.service, id, status)
const textOf = (chunks: number, lines = 3): string =>
  Array.from({ length: chunks }, (_, part) =>
    Array.from({ length: lines }, (_, line) => `${part}:${line}\n`).join(''),
  ).join('')
const artifactOf = (id: string) => made.service.services.getArtifact(principal, id)
const noArtifact = (id: string) => expect(artifactOf(id)).rejects.toMatchObject({ code: 'artifact-not-published' })

describe('an artifact', () => {
  it('is what its chunks wrote, in their order; afterwards nothing else is kept', async () => {
    const { id, counts } = await made.make('report', { chunks: 12 })
    expect(counts.total).toBe(13)
    expect((await ended(id)).counts).toMatchObject({ applied: 13, failed: 0 })
    expect(String(await made.download(id))).toBe(textOf(12))
    const artifact = await artifactOf(id)
    expect(artifact).toMatchObject({
      operationId: id,
      name: 'report-of-12-chunks.txt',
      contentType: 'text/plain',
      supersededAt: null,
    })
    const items = await made.service.items(id)
    expect([...items.keys()].at(-1)).toBe('publish')
    expect(items.get('publish')?.effectRef).toBe(formatId('art', artifact.id))
    expect(items.get('part-0')?.effectRef).toMatch(/^tmp\/1\/\S+\/0-1 size=12 sha256=[0-9a-f]{64}$/)
    await made.sweep()
    expect(made.stored()).toEqual([`artifacts/1/${id}/${artifact.id}`])
    await expectConserved(made.service, id)
  })

  it('may be empty', async () => {
    const { id } = await made.make('report', { chunks: 2, lines: 0 })
    await ended(id)
    expect((await made.download(id)).length).toBe(0)
  })
})

describe('a submission', () => {
  it.each([
    [{ items: [{ key: 'a', input: {} }] }, 'items-not-accepted', '/items'],
    [{ draft: true }, 'items-not-accepted', '/draft'],
    [{ input: { chunks: 0 } }, 'invalid-input', '/input/chunks'],
    [{ input: undefined }, 'invalid-input', '/input/chunks'],
    [{ input: { chunks: 13 } }, 'invalid-input', '/input/chunks'],
    [{ input: { chunks: 10_001 } }, 'invalid-input', '/input'],
  ])('%j is refused as %s, and nothing is stored', async (change, code, pointer) => {
    const before = await made.service.database.query(({ sql }) => sql`select id from operations`)
    await expect(made.service.submit('report', [], { input: { chunks: 1 }, ...change })).rejects.toMatchObject({
      code,
      errors: [{ pointer }],
    })
    expect(await made.service.database.query(({ sql }) => sql`select id from operations`)).toEqual(before)
  })
})

describe('ledger-export', () => {
  const rowsOf = async (id: string) => (await made.service.ledger(id)).map(ledgerRow)
  const plant = (items: number, prefix = 'i') =>
    plantOperation(made.service.database, {
      type: 'report',
      status: 'partially_succeeded',
      items: Array.from({ length: items }, (_, i) => ({
        key: i % 3 === 0 ? `=${prefix}"${i},\n` : `${prefix}-${i}`,
        entries: [{ state: 'failed', failureClass: 'transient' }, { state: 'applied' }],
      })),
    })

  it('has the entries of an operation as NDJSON', async () => {
    const of = await plant(40)
    const { id } = await made.make('ledger-export', { operation_id: formatId('op', of) })
    await ended(id)
    const rows = await rowsOf(of)
    expect(rows).toHaveLength(80)
    expect(String(await made.download(id))).toBe(rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
    expect(await artifactOf(id)).toMatchObject({
      name: `${formatId('op', of)}.ndjson`,
      contentType: 'application/x-ndjson',
    })
  })

  it('has them as CSV, with one header over all parts', async () => {
    const of = await plant(10)
    const { id } = await made.make('ledger-export', { operation_id: formatId('op', of), format: 'csv' })
    await ended(id)
    const lines = (await rowsOf(of)).map((row) => csvLine(LEDGER_COLUMNS.map((column) => row[column])))
    expect(String(await made.download(id))).toBe(`${csvLine(LEDGER_COLUMNS)}${lines.join('')}`)
  })

  it('refuses an operation that the tenant does not have', async () => {
    const foreign = await plantOperation(made.service.database, {
      tenantId: 2,
      type: 'report',
      status: 'succeeded',
      items: [{ key: 'a', entries: [{ state: 'applied' }] }],
    })
    for (const name of [formatId('op', foreign), 'op_0', 'x', `op_${'0'.repeat(32)}`]) {
      await expect(made.make('ledger-export', { operation_id: name })).rejects.toMatchObject({
        code: 'invalid-input',
        errors: [{ pointer: '/input/operation_id' }],
      })
    }
  })

  it.each([
    [{}, '/input'],
    [{ operation_id: 'op_1', from: '2026-01-01T00:00:00Z' }, '/input'],
    [{ from: '2026-01-01T00:00:00Z' }, '/input'],
    [{ from: '2026-01-02T00:00:00Z', to: '2026-01-01T00:00:00Z' }, '/input/to'],
    [{ from: 'yesterday', to: '2026-01-01T00:00:00Z' }, '/input/from'],
    [{ from: '0000-01-01T00:00:00Z', to: '2026-01-01T00:00:00Z' }, '/input/from'],
    [{ from: '2026-01-01T00:00:00Z', to: '2026-01-02T00:00:00-23:59' }, '/input/to'],
    [{ operation_id: 'op_1', format: 'xml' }, '/input/format'],
    [{ operation_id: 'op_1', extra: 1 }, '/input'],
  ])('refuses %j', async (input, pointer) => {
    await expect(made.make('ledger-export', input)).rejects.toMatchObject({
      code: 'invalid-input',
      errors: [{ pointer }],
    })
  })
})

describe('ledger-export after an operation that runs', () => {
  const range = { from: '2026-01-01T00:00:00Z', to: '2999-01-01T00:00:00Z' }
  it.each([
    ['of that operation', (of: string) => ({ operation_id: formatId('op', of) })],
    ['of a period', () => range],
  ])('waits for its end, and has all of it: %s', async (name, inputOf) => {
    const gate = made.newGate()
    for (const part of [0, 1, 2]) gate.set(`wait-part-${part}`)
    const of = await made.make('report', { chunks: 3, gate: gate.directory, key: `awaited ${name}` })
    await until('a chunk is being written', () => gate.has('started-part-0'))
    const input = inputOf(of.id)
    const { id } = await made.service.submit('ledger-export', [], { input, body: { input, of: of.id }, after: [of.id] })
    expect(await made.service.view(id)).toMatchObject({ status: 'pending', after: [of.id] })
    await noArtifact(id)
    for (const part of [0, 1, 2]) gate.open(`wait-part-${part}`)
    await ended(of.id)
    await ended(id)
    const rows = (await made.service.ledger(of.id)).map(ledgerRow)
    expect(rows).toHaveLength(4)
    const told = String(await made.download(id))
      .split('\n')
      .filter((line) => line !== '')
      .map((line): Record<string, unknown> => JSON.parse(line))
    const mine = 'operation_id' in input ? told : told.filter((row) => row.operation_id === formatId('op', of.id))
    expect(mine.map(({ operation_id: _, ...row }) => row)).toEqual(rows)
  })
})

describe('a bulk replay', () => {
  it('writes all of each artifact again, whatever part of it was asked for', async () => {
    const gate = made.newGate()
    gate.set('fail-part-1')
    const ids: string[] = []
    for (const run of [1, 2]) {
      const input = { chunks: 3, gate: gate.directory, key: `bulk ${run}` }
      ids.push((await made.service.submit('report', [], { input, body: { input }, labels: { run: 'bulk' } })).id)
    }
    for (const id of ids) await ended(id, 'partially_succeeded')
    gate.open('fail-part-1')
    const { action } = await made.service.services.createBulkAction(principal, {
      action: 'replay',
      filter: { ...NO_FILTER, labels: { run: 'bulk' } },
      scope: { states: ['failed'], failureClasses: ['transient'], itemKeys: null },
      reason: 'the chunks can be written now',
      dryRun: false,
      ratePerSecond: 20,
      idempotencyKey: null,
      body: {},
    })
    const worker = bulkActions(made.service.context, { warn: (error: unknown) => expect(error).toBeUndefined() })
    await until('the bulk action has finished', async () => {
      await worker.runOnce()
      return (await made.service.services.getBulkAction(principal, action.id))?.status === 'finished'
    })
    for (const id of ids) {
      const { replayedBy } = await made.service.view(id)
      expect(replayedBy).toHaveLength(1)
      const [again = ''] = replayedBy
      expect((await ended(again)).counts).toMatchObject({ total: 4, applied: 4, skipped: 0 })
      expect(String(await made.download(again))).toBe(textOf(3))
      await noArtifact(id)
    }
  })
})

describe('a failed chunk', () => {
  it('fails the publish; the replay writes all chunks again and publishes', async () => {
    const gate = made.newGate()
    gate.set('fail-part-1')
    const { id } = await made.make('report', { chunks: 3, gate: gate.directory })
    const view = await ended(id, 'partially_succeeded')
    expect(view.failures).toEqual({ transient: 1, conflict: 1 })
    const items = await made.service.items(id)
    expect(items.get('publish')).toMatchObject({
      state: 'failed',
      failureClass: 'conflict',
      reasonCode: 'CHUNKS_MISSING',
    })
    expect(items.get('part-1')).toMatchObject({ state: 'failed', reasonCode: 'HANDLER_ERROR', attempt: 2 })
    await noArtifact(id)
    await made.sweep()
    expect(made.stored().filter((name) => name.includes(id))).toEqual([])

    gate.open('fail-part-1')
    const preflight = await made.service.services.preflightReplay(principal, id, { scope: null })
    expect(preflight).toMatchObject({ allowed: true, replayTargets: 4, failedTargets: 2 })
    const replay = await made.service.services.replayOperation(principal, id, {
      preflightId: preflight.id,
      reason: 'the chunk can be written now',
      force: [],
      ifMatchVersion: null,
    })
    const again = await ended(replay.operation.id)
    expect(again.counts).toMatchObject({ total: 4, applied: 4, skipped: 0 })
    expect(String(await made.download(again.id))).toBe(textOf(3))
    const nothing = await made.service.services.preflightReplay(principal, again.id, { scope: null })
    expect(nothing.blockedBy).toEqual(['nothing-to-replay'])
  })
})

describe('a cancel', () => {
  it('before the publish discards everything', async () => {
    const gate = made.newGate()
    gate.set('wait-part-4')
    const { id } = await made.make('report', { chunks: 6, gate: gate.directory })
    await until('the chunk is being written', () => gate.has('started-part-4'))
    expect((await made.service.services.cancelOperation(principal, id, now)).status).toBe(202)
    gate.open('wait-part-4')
    await ended(id, 'cancelled')
    await noArtifact(id)
    await made.sweep()
    expect(made.stored().filter((name) => name.includes(id))).toEqual([])
    await expectConserved(made.service, id)
  })

  it('during a pause does the same, and a resumed one publishes', async () => {
    const gate = made.newGate()
    gate.set('wait-part-2')
    const { id } = await made.make('report', { chunks: 5, gate: gate.directory })
    await until('the chunk is being written', () => gate.has('started-part-2'))
    await made.service.services.pauseOperation(principal, id, now)
    gate.open('wait-part-2')
    await ended(id, 'paused')
    await made.sweep()
    await made.service.services.resumeOperation(principal, id, now)
    await ended(id)
    expect(String(await made.download(id))).toBe(textOf(5))
  })
})
