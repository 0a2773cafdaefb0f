/** A submission that is broken off anywhere and repeated: one operation, its rows once, started once. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import { type ApiClient, Refusal } from '../../../src/cli/api-client.ts'
import type { Operation, Problem, Submission } from '../../../src/cli/api-types.ts'
import { CommandFailure, EXIT } from '../../../src/cli/exit-codes.ts'
import { openRowsFile, readRows } from '../../../src/cli/rows-file.ts'
import { deriveKey, submitRows } from '../../../src/cli/submission.ts'
import { operationIn } from './operations.ts'

const directory = mkdtempSync(path.join(tmpdir(), 'opledger-cli-'))
const file = path.join(directory, 'rows.csv')
afterAll(() => rmSync(directory, { recursive: true }))
beforeEach(() => writeFileSync(file, 'key,to\na,1\nb,2\n'))

const problem = (status: number, code: string): Refusal =>
  new Refusal({ type: '', code, title: code, status, detail: code, instance: '', request_id: 'r' } satisfies Problem)

const textOf = async (bytes: Readable): Promise<string> => {
  let text = ''
  for await (const chunk of bytes) text += String(chunk)
  return text
}

/** The part of the service that a submission meets, with its rules. `lose` breaks one answer off, after the work was done. */
class Service {
  readonly operations: Operation[] = []
  readonly #byKey = new Map<string, { operation: Operation; body: string }>()
  readonly uploads = new Map<string, Map<string, string>>()
  starts = 0
  refuseRows = false
  lose: 'submit' | 'upload' | 'start' | null = null

  #maybeLose(step: Service['lose']): void {
    if (this.lose !== step) return
    this.lose = null
    // as a process that is killed: the command is over
    throw new Error('killed')
  }

  readonly api = {
    submit: async (body: Submission, key: string) => {
      const known = this.#byKey.get(key)
      if (known) {
        if (known.body !== JSON.stringify(body)) throw problem(422, 'idempotency-key-reused')
        return { body: known.operation, etag: null, replayed: true }
      }
      const counts = { ...operationIn('draft').counts, total: 0 }
      const operation = operationIn('draft', { id: `op_${this.operations.length}`, counts, started_at: null })
      this.operations.push(operation)
      this.#byKey.set(key, { operation, body: JSON.stringify(body) })
      this.#maybeLose('submit')
      return { body: operation, etag: null, replayed: false }
    },
    upload: async (id: string, request: { bytes: () => Readable; idempotencyKey: string }) => {
      const operation = this.#find(id)
      if (operation.status !== 'draft') throw problem(409, 'operation-not-draft')
      const text = await textOf(request.bytes())
      if (this.refuseRows) throw problem(422, 'invalid-row')
      const uploads = this.uploads.get(id) ?? new Map<string, string>()
      this.uploads.set(id, uploads.set(request.idempotencyKey, text))
      this.#maybeLose('upload')
      return { added: 2, total: 2 }
    },
    start: async (id: string) => {
      const operation = this.#find(id)
      if (operation.status !== 'draft') throw problem(409, 'operation-not-draft')
      operation.status = 'pending'
      this.starts++
      this.#maybeLose('start')
      return operation
    },
    getOperation: async (id: string) => ({ body: this.#find(id), etag: null, replayed: false }),
    cancel: async (id: string) => {
      const operation = this.#find(id)
      operation.status = 'cancelled'
      return operation
    },
  } as unknown as ApiClient

  #find(id: string): Operation {
    const found = this.operations.find((operation) => operation.id === id)
    if (found === undefined) throw problem(404, 'operation-not-found')
    return found
  }
}

const run = async (service: Service, options: { key?: string; reason?: string } = {}) => {
  const rows = await openRowsFile(file, 'csv')
  const key = { value: options.key ?? deriveKey('grant', rows.sha256), derived: options.key === undefined }
  const body = { type: 'grant', ...(options.reason !== undefined && { reason: options.reason }) }
  const events = { onDraft: () => {}, onBytes: () => {}, note: () => {} }
  return submitRows(service.api, body, { file: rows, keyColumn: null }, key, events, new AbortController().signal)
}

describe('a submission of rows', () => {
  it.each(['submit', 'upload', 'start'] as const)(
    'is one operation when it was killed behind %s and repeated',
    async (lose) => {
      const service = new Service()
      service.lose = lose
      await expect(run(service)).rejects.toThrow('killed')
      const { operation, replayed } = await run(service)
      expect([operation.status, replayed]).toEqual(['pending', true])
      expect(service.operations).toHaveLength(1)
      expect(service.starts).toBe(1)
      expect([...(service.uploads.get(operation.id)?.values() ?? [])]).toEqual(['key,to\na,1\nb,2\n'])
      // and however often it is repeated after that
      expect((await run(service)).operation.id).toBe(operation.id)
      expect(service.starts).toBe(1)
    },
  )

  it('is new work when the rows are others, or another key is given', async () => {
    const service = new Service()
    const first = await run(service)
    writeFileSync(file, 'key,to\na,1\n')
    const second = await run(service)
    const third = await run(service, { key: 'newsletter-2' })
    expect(new Set([first, second, third].map(({ operation }) => operation.id)).size).toBe(3)
  })

  it('refuses the same rows with another reason, rather than sending them twice', async () => {
    const service = new Service()
    await run(service, { reason: 'hello' })
    await expect(run(service, { reason: 'hello again' })).rejects.toThrow(/idempotency-key-reused/)
    expect(service.operations).toHaveLength(1)
  })

  it('drops a draft whose rows were refused, and can be repeated once they are taken', async () => {
    const service = new Service()
    service.refuseRows = true
    await expect(run(service)).rejects.toThrow(/invalid-row/)
    expect(service.operations.map(({ status }) => status)).toEqual(['cancelled'])
    service.refuseRows = false
    const { operation, replayed } = await run(service)
    expect([operation.status, replayed]).toEqual(['pending', false])
    expect(service.operations.map(({ status }) => status)).toEqual(['cancelled', 'pending'])
    expect((await run(service)).operation.id).toBe(operation.id)
  })

  it('keeps the draft of a given key for better rows', async () => {
    const service = new Service()
    service.refuseRows = true
    await expect(run(service, { key: 'mine' })).rejects.toThrow(/invalid-row/)
    service.refuseRows = false
    writeFileSync(file, 'key,to\nbetter,1\n')
    const { operation } = await run(service, { key: 'mine' })
    expect(operation).toMatchObject({ id: 'op_0', status: 'pending' })
  })

  it('does not take what was cancelled after it had items for an empty draft', async () => {
    const service = new Service()
    const { operation } = await run(service)
    operation.status = 'cancelled'
    operation.counts.total = 2
    expect((await run(service)).operation.id).toBe(operation.id)
  })
})

describe('the rows of a file', () => {
  it('fail before their end when the file was changed meanwhile, so that nothing is added', async () => {
    const rows = await openRowsFile(file, 'csv')
    const sent: number[] = []
    expect(await textOf(readRows(rows, (bytes) => sent.push(bytes)))).toBe('key,to\na,1\nb,2\n')
    expect(sent.at(-1)).toBe(rows.bytes)
    writeFileSync(file, 'key,to\na,1\nb,3\n')
    let text = ''
    const reading = async () => {
      for await (const chunk of readRows(rows, () => {})) text += String(chunk)
    }
    await expect(reading()).rejects.toThrow(/was changed while it was being read/)
    expect(text).toBe('')
  })

  it.each([
    ['nothing there', path.join(directory, 'absent.csv')],
    ['a directory', directory],
  ])('are a usage fault where the path is %s', async (_name, at) => {
    const failure = await openRowsFile(at, 'csv').catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(CommandFailure)
    expect((failure as CommandFailure).exitCode).toBe(EXIT.usage)
  })
})
