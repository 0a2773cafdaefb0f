/** Artifacts over HTTP: a real server, a real database, a local object store, and an engine that makes them. */
import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId, parseId } from '../../src/domain/ids.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { assembleServices } from '../../src/services/assemble.ts'
import { downloadPath } from '../../src/services/download-links.ts'
import { type ArtifactService, DOWNLOAD_SECRET, openArtifactService } from '../support/artifacts.ts'
import { plantOperation } from '../support/planted-operation.ts'
import { untilStatus } from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'

let made: ArtifactService
let engine: TestEngine
let app: App
let url: string

const open = async (services: ArtifactService['service']['services'], publicUrl: string | null): Promise<App> => {
  const server = await buildServer({
    services,
    config: { auth: 'off', publicUrl },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await server.listen({ port: 0, host: '127.0.0.1' })
  return server
}
const addressOf = (server: App): string => `http://127.0.0.1:${(server.server.address() as AddressInfo).port}`

beforeAll(async () => {
  made = await openArtifactService()
  const { service, objects, types } = made
  engine = await startTestEngine({ url: service.url, types, objects, maintenance: false })
  app = await open(service.services, null)
  url = addressOf(app)
})
afterAll(async () => {
  await app.close()
  await engine.drain()
  await made.close()
})

const submit = async (body: object, base = url): Promise<Response> =>
  fetch(`${base}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
const published = async (input: object, type = 'report'): Promise<string> => {
  const answer = await submit({ type, input })
  expect(answer.status).toBe(202)
  const { id } = (await answer.json()) as { id: string }
  await untilStatus(made.service, parseId('op', id) ?? '', 'succeeded')
  return id
}
const artifactOf = async (id: string) => {
  const answer = await fetch(`${url}/operations/${id}/artifact`)
  expect(answer.status).toBe(200)
  return (await answer.json()) as {
    id: string
    superseded_by: string | null
    supersede_reason: string | null
    download: { url: string; expires_at: string } | null
    [member: string]: unknown
  }
}
const linkOf = async (id: string): Promise<string> => `${url}${(await artifactOf(id)).download?.url}`
const refusal = async (path: string) => {
  const answer = await fetch(path.startsWith('http') ? path : `${url}${path}`)
  expect(answer.headers.get('content-type')).toContain('application/problem+json')
  const problem = (await answer.json()) as { code: string; detail: string }
  return [answer.status, problem.code]
}
const set = (sql: string, id: string) =>
  made.service.database.transaction(({ script }) =>
    script(`update artifacts set ${sql} where operation_id = '${parseId('op', id)}'`),
  )

describe('the artifact of an operation', () => {
  it('is shown with a link, and downloads with what is known of it', async () => {
    const id = await published({ chunks: 2, key: 'shown' })
    const artifact = await artifactOf(id)
    expect(artifact).toMatchObject({
      id: expect.stringMatching(/^art_[0-9a-f]{32}$/),
      operation_id: id,
      name: 'report-of-2-chunks.txt',
      content_type: 'text/plain',
      size_bytes: 24,
      superseded_at: null,
      superseded_by: null,
      supersede_reason: null,
    })
    const days = (Date.parse(String(artifact.expires_at)) - Date.parse(String(artifact.published_at))) / 86_400_000
    expect(days).toBeCloseTo(7, 5)
    const minutes = (Date.parse(artifact.download?.expires_at ?? '') - Date.now()) / 60_000
    expect(minutes).toBeGreaterThan(13)
    expect(minutes).toBeLessThan(16)

    const answer = await fetch(`${url}${artifact.download?.url}`)
    expect(answer.status).toBe(200)
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'text/plain',
      'content-length': '24',
      'content-disposition': 'attachment; filename="report-of-2-chunks.txt"',
      etag: `"${artifact.sha256}"`,
      'repr-digest': `sha-256=:${Buffer.from(String(artifact.sha256), 'hex').toString('base64')}:`,
    })
    expect(await answer.text()).toBe('0:0\n0:1\n0:2\n1:0\n1:1\n1:2\n')
    const head = await fetch(`${url}${artifact.download?.url}`, { method: 'HEAD' })
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '24'])
  })

  it('is not there before the publish, for other types, and for operations that do not exist', async () => {
    const gate = made.newGate()
    gate.set('wait-part-0')
    const { id } = (await (await submit({ type: 'report', input: { chunks: 1, gate: gate.directory } })).json()) as {
      id: string
    }
    expect(await refusal(`/operations/${id}/artifact`)).toEqual([404, 'artifact-not-published'])
    gate.open('wait-part-0')
    const other = await plantOperation(made.service.database, { type: 'other', status: 'succeeded', items: [] })
    expect(await refusal(`/operations/${formatId('op', other)}/artifact`)).toEqual([404, 'artifact-not-published'])
    expect(await refusal(`/operations/op_${'0'.repeat(32)}/artifact`)).toEqual([404, 'operation-not-found'])
    const foreign = await plantOperation(made.service.database, {
      tenantId: 2,
      type: 'report',
      status: 'succeeded',
      items: [],
    })
    expect(await refusal(`/operations/${formatId('op', foreign)}/artifact`)).toEqual([404, 'operation-not-found'])
  })

  it('has an absolute link where the service knows its address', async () => {
    const id = await published({ chunks: 1, key: 'absolute' })
    const elsewhere = await open(made.service.services, 'https://ledger.example')
    const answer = await fetch(`${addressOf(elsewhere)}/operations/${id}/artifact`)
    expect(((await answer.json()) as { download: { url: string } }).download.url).toMatch(
      /^https:\/\/ledger\.example\/artifacts\/art_/,
    )
    await elsewhere.close()
  })

  it('of ledger-export is byte for byte what the ledger streams', async () => {
    const of = await published({ chunks: 30, key: 'exported' })
    for (const [format, mediaType] of [
      ['ndjson', 'application/x-ndjson'],
      ['csv', 'text/csv'],
    ]) {
      const id = await published({ operation_id: of, format }, 'ledger-export')
      const file = Buffer.from(await (await fetch(await linkOf(id))).arrayBuffer())
      const streamed = await fetch(`${url}/operations/${of}/ledger`, { headers: { accept: mediaType ?? '' } })
      expect(file.equals(Buffer.from(await streamed.arrayBuffer()))).toBe(true)
      expect(file.length).toBeGreaterThan(1_000)
    }
  })
})

describe('a download link', () => {
  it('is refused when anything in it was changed', async () => {
    const link = await linkOf(await published({ chunks: 1, key: 'forged' }))
    const other = await artifactOf(await published({ chunks: 1, key: 'other' }))
    for (const forged of [
      link.replace(/expires=(\d+)/, (_, seconds) => `expires=${Number(seconds) + 60}`),
      link.replace(/signature=.{4}/, 'signature=AAAA'),
      link.replace(/signature=.*/, 'signature=x'),
      link.replace(/art_[0-9a-f]{32}/, other.id),
    ]) {
      expect(await refusal(forged)).toEqual([403, 'download-link-invalid'])
    }
    expect(await refusal(link.replace(/&signature=.*/, ''))).toEqual([400, 'invalid-request'])
    expect(await refusal(link.replace(/expires=\d+/, 'expires=soon'))).toEqual([400, 'invalid-request'])
    expect(await refusal(link.replace(/art_[0-9a-f]{32}/, 'art_1'))).toEqual([404, 'artifact-not-found'])
  })

  it('ends', async () => {
    const { id } = await artifactOf(await published({ chunks: 1, key: 'ends' }))
    const past = Math.floor(Date.now() / 1_000) - 60
    const link = downloadPath(DOWNLOAD_SECRET, parseId('art', id) ?? '', past)
    expect(await refusal(link)).toEqual([403, 'download-link-expired'])
  })

  it('does not outlive its artifact', async () => {
    const id = await published({ chunks: 1, key: 'outlived' })
    await set(`expires_at = now() + interval '1 minute'`, id)
    const { expires_at, download } = await artifactOf(id)
    expect(Date.parse(download?.expires_at ?? '')).toBeLessThanOrEqual(Date.parse(String(expires_at)))
  })

  it('is good for nothing once the artifact has expired, and the object is removed', async () => {
    const id = await published({ chunks: 1, key: 'expired' })
    const link = await linkOf(id)
    await set(`expires_at = now() - interval '1 second'`, id)
    expect(await refusal(link)).toEqual([410, 'artifact-gone'])
    expect((await artifactOf(id)).download).toBeNull()
    await made.sweep()
    await made.sweep()
    expect(made.stored().filter((name) => name.includes(parseId('op', id) ?? ''))).toEqual([])
    expect(await refusal(link)).toEqual([410, 'artifact-gone'])
  })

  it('is good for nothing once a newer artifact has taken the place', async () => {
    const older = await published({ chunks: 1, key: 'twice' })
    const link = await linkOf(older)
    const newer = await published({ chunks: 1, key: 'twice' })
    expect(await refusal(link)).toEqual([410, 'artifact-gone'])
    expect(await artifactOf(older)).toMatchObject({
      supersede_reason: 'newer',
      superseded_by: (await artifactOf(newer)).id,
      download: null,
    })
    await made.sweep()
    expect((await fetch(await linkOf(newer))).status).toBe(200)
  })

  it('is good for nothing once its operation was cancelled after the publish', async () => {
    const id = await published({ chunks: 1, key: 'cancelled' })
    const link = await linkOf(id)
    await set(`superseded_at = now(), supersede_reason = 'cancel'`, id)
    expect(await refusal(link)).toEqual([410, 'artifact-gone'])
    expect(await artifactOf(id)).toMatchObject({ supersede_reason: 'cancel', superseded_by: null, download: null })
  })

  it('tells when the object itself is missing, before it answers', async () => {
    const id = await published({ chunks: 1, key: 'missing' })
    await made.objects.deleteFolder(`artifacts/1/${parseId('op', id)}`)
    expect(await refusal(await linkOf(id))).toEqual([410, 'artifact-gone'])
  })

  it('streams with back-pressure: a client that does not read holds the file where it is', async () => {
    const id = await published({ chunks: 40, lines: 40_000, key: 'large' })
    const link = await linkOf(id)
    const size = Number((await artifactOf(id)).size_bytes)
    expect(size).toBeGreaterThan(10_000_000)
    const request = get(link)
    const [answer] = (await once(request, 'response')) as [IncomingMessage]
    let read = 0
    answer.once('data', (bytes: Buffer) => {
      read += bytes.length
      answer.pause()
    })
    await once(answer, 'pause')
    // what has left the server fits into the buffers of the two sockets
    expect(read).toBeLessThan(size / 4)
    answer.on('data', (bytes: Buffer) => {
      read += bytes.length
    })
    answer.resume()
    await once(answer, 'end')
    expect(read).toBe(size)
  })
})

it('without a secret nothing is accepted that could not be downloaded', async () => {
  const id = await published({ chunks: 1, key: 'secretless' })
  const services = assembleServices(made.service.context, { objects: made.objects, secret: null })
  const bare = await open(services, null)
  const refused = await submit({ type: 'report', input: { chunks: 1 } }, addressOf(bare))
  expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([503, 'downloads-not-configured'])
  for (const path of [`/operations/${id}/artifact`, (await artifactOf(id)).download?.url]) {
    expect(await refusal(`${addressOf(bare)}${path}`)).toEqual([503, 'downloads-not-configured'])
  }
  await bare.close()
  await services.close()
})
