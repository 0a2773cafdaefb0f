/** Both kinds of object store against the same expectations: a directory, and a small server that speaks S3. */
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ObjectMissing, type ObjectStore } from '../../src/objects/object-store.ts'
import { openObjectStore } from '../../src/objects/open-object-store.ts'

const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-objects-'))
const s3Objects = new Map<string, Buffer>()
let s3: Server
const stores = new Map<string, ObjectStore>()

const bodyOf = async (request: IncomingMessage): Promise<Buffer> => {
  const pieces: Buffer[] = []
  for await (const piece of request) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

/** PutObject, GetObject, DeleteObject, ListObjectsV2 in pages of two, DeleteObjects. */
const startS3 = async (): Promise<Server> => {
  const server = createServer(async (request, response) => {
    const url = new URL(request.url ?? '', 'http://s3')
    const key = decodeURIComponent(url.pathname).replace(/^\/bucket\/?/, '')
    const body = await bodyOf(request).catch(() => null)
    if (body === null) return // the client gave up
    const xml = (text: string): void => void response.setHeader('content-type', 'application/xml').end(text)
    if (request.method === 'PUT') {
      s3Objects.set(key, body)
      response.setHeader('etag', '"e"').end()
    } else if (request.method === 'DELETE') {
      s3Objects.delete(key)
      response.writeHead(204).end()
    } else if (request.method === 'POST') {
      for (const [, gone] of String(body).matchAll(/<Key>([^<]*)<\/Key>/g)) s3Objects.delete(gone ?? '')
      xml('<DeleteResult/>')
    } else if (url.searchParams.has('list-type')) {
      const prefix = url.searchParams.get('prefix') ?? ''
      const after = url.searchParams.get('continuation-token') ?? ''
      const keys = [...s3Objects.keys()].sort().filter((name) => name.startsWith(prefix) && name > after)
      const page = keys.slice(0, 2)
      const next = keys.length > 2 ? `<NextContinuationToken>${page[1]}</NextContinuationToken>` : ''
      const contents = page.map((name) => `<Contents><Key>${name}</Key><Size>1</Size></Contents>`).join('')
      xml(`<ListBucketResult><IsTruncated>${next !== ''}</IsTruncated>${contents}${next}</ListBucketResult>`)
    } else if (s3Objects.has(key)) response.end(s3Objects.get(key))
    else {
      response.statusCode = 404
      xml('<Error><Code>NoSuchKey</Code><Message>none</Message></Error>')
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return server
}

beforeAll(async () => {
  s3 = await startS3()
  stores.set(
    'file',
    await openObjectStore({ kind: 'file', directory: path.join(directory, 'objects'), required: true }),
  )
  stores.set(
    's3',
    await openObjectStore({
      kind: 's3',
      bucket: 'bucket',
      prefix: 'some/where',
      endpoint: `http://127.0.0.1:${(s3.address() as AddressInfo).port}`,
      region: 'eu-central-1',
      credentials: { accessKeyId: 'id', secretAccessKey: 'secret' },
      forcePathStyle: true,
    }),
  )
})
afterAll(async () => {
  for (const store of stores.values()) await store.close()
  s3.closeAllConnections()
  s3.close()
  rmSync(directory, { recursive: true, force: true })
})

async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text)
}
const options = { contentType: 'text/plain', sizeBytes: null }

describe.each(['file', 's3'])('a store of kind %s', (kind) => {
  const store = (): ObjectStore => stores.get(kind) as ObjectStore
  const read = async (name: string): Promise<string> => {
    let text = ''
    for await (const bytes of store().read(name)) text += String(Buffer.from(bytes))
    return text
  }

  it('gives back what was put, with and without a known size, and nothing for nothing', async () => {
    await store().put('a/known', pieces('one', 'two'), { ...options, sizeBytes: 6 })
    await store().put('a/unknown', pieces('three'), options)
    await store().put('a/empty', pieces(), { ...options, sizeBytes: 0 })
    expect([await read('a/known'), await read('a/unknown'), await read('a/empty')]).toEqual(['onetwo', 'three', ''])
  })

  it('tells what is missing', async () => {
    await expect(read('a/none')).rejects.toThrow(ObjectMissing)
  })

  it('lists and deletes, also what is not there', async () => {
    for (const name of ['b/1', 'b/2', 'b/3', 'bb/4']) await store().put(name, pieces(name), options)
    expect((await store().list('b')).sort()).toEqual(['b/1', 'b/2', 'b/3'])
    await store().delete('b/2')
    await store().delete('b/2')
    expect((await store().list('b')).sort()).toEqual(['b/1', 'b/3'])
    await store().deleteFolder('b')
    await store().deleteFolder('b')
    expect([await store().list('b'), await store().list('nowhere')]).toEqual([[], []])
    expect(await read('bb/4')).toBe('bb/4')
  })

  it('fails when its source does', async () => {
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield Buffer.from('half')
      throw new Error('the source broke')
    }
    for (const sizeBytes of [null, 8]) {
      await expect(store().put('c/broken', broken(), { ...options, sizeBytes })).rejects.toThrow()
    }
  })
})

it('s3: names stand behind the prefix', () => {
  expect([...s3Objects.keys()].every((name) => name.startsWith('some/where/'))).toBe(true)
})

it('file: only its owner may enter the directory; what cannot be one stops the start', async () => {
  expect(statSync(path.join(directory, 'objects')).mode & 0o777).toBe(0o700)
  writeFileSync(path.join(directory, 'taken'), '')
  const taken = { kind: 'file', directory: path.join(directory, 'taken') } as const
  await expect(openObjectStore({ ...taken, required: true })).rejects.toThrow(
    /^OPLEDGER_ARTIFACT_STORE: .*taken cannot be used as a directory/,
  )
  // a default that cannot be used is missed by those only who make artifacts
  const store = await openObjectStore({ ...taken, required: false })
  await expect(store.put('a/b', pieces('x'), options)).rejects.toThrow()
})
