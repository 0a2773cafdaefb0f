/** Uploads that are cut short, stand still or come together, over HTTP. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { MAX_TENANT_UPLOADS } from '../../src/http/limits.ts'
import { removeAbandonedUpload } from '../../src/services/abandoned-uploads.ts'
import { type DraftApi, line, lines, NDJSON, openDraftApi, uuidOf } from '../support/drafts.ts'
import { plantedType } from '../support/planted-operation.ts'
import { until } from '../support/processes.ts'

const picky = plantedType('picky', {
  validateInput: (input) => (JSON.stringify(input) === '{}' ? [{ pointer: '', detail: 'is empty' }] : []),
})

let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi([picky])
})
afterAll(() => api.close())

const start = (id: string) => api.call('POST', `/operations/${id}/start`)

const expectNothingAdded = async (id: string): Promise<void> => {
  expect((await api.call('GET', `/operations/${id}`)).body.counts.total).toBe(0)
  expect((await api.call('GET', `/operations/${id}/items`)).body.items).toEqual([])
  await until('the upload is given up', async () => !(await api.openUploads(id)).includes('live'))
}

describe('an upload that does not end', () => {
  it('keeps the draft to itself; when its client goes away, nothing was added', async () => {
    const id = await api.draft()
    const { request } = api.open(id)
    request.write(lines(12_000))
    request.on('error', () => {})
    await until('its first chunk is stored', async () => (await api.rows(id)) > 0)
    for (const refused of [await api.upload(id, line('x')), await start(id)]) {
      expect([refused.status, refused.body.code]).toEqual([409, 'upload-in-progress'])
      expect(refused.headers.get('retry-after')).toBe('5')
    }
    request.destroy()
    await expectNothingAdded(id)
    expect((await api.upload(id, lines(5))).body).toEqual({ added: 5, total: 5 })
    expect(await api.rows(id)).toBe(5)
  })

  it('ends when the draft is cancelled meanwhile', async () => {
    const id = await api.draft()
    const { request, answer } = api.open(id)
    request.write(lines(6_000))
    await until('its first chunk is stored', async () => (await api.rows(id)) > 0)
    expect((await api.call('POST', `/operations/${id}/cancel`)).body.status).toBe('cancelled')
    request.end(lines(100, 'x'))
    expect((await answer).body).toMatchObject({ code: 'operation-not-draft', operation_status: 'cancelled' })
    await expectNothingAdded(id)
  })

  it('is cleared away when nobody continues it', async () => {
    const id = await api.draft()
    await api.upload(id, line('kept'))
    await api.upload(id, `${lines(25_000)}${line('bad', {})}`)
    const { database } = api.service
    await database.query(
      ({ sql }) => sql`
        update operation_uploads set last_seen_at = now() - interval '5 minutes'
        where operation_id = ${uuidOf(id)}::uuid and state <> 'done'`,
    )
    await until('there is nothing to clear', async () => !(await removeAbandonedUpload({ database })))
    expect([await api.rows(id), await api.openUploads(id)]).toEqual([1, []])
  })

  it('loses its place when it stands still for too long, and adds nothing then', async () => {
    const id = await api.draft()
    const slow = api.open(id)
    slow.request.write(lines(6_000, 'slow'))
    await until('its first chunk is stored', async () => (await api.rows(id)) > 0)
    await api.service.database.query(
      ({ sql }) => sql`
        update operation_uploads set last_seen_at = now() - interval '31 seconds'
        where operation_id = ${uuidOf(id)}::uuid`,
    )
    expect((await api.upload(id, lines(3))).body).toEqual({ added: 3, total: 3 })
    slow.request.end(lines(10, 'late'))
    expect((await slow.answer).body.code).toBe('upload-lost')
    expect([await api.rows(id), await api.openUploads(id)]).toEqual([3, []])
    expect((await start(id)).status).toBe(202)
  })
})

describe('a refusal', () => {
  it('comes before the rest of the body', async () => {
    const id = await api.draft()
    const bad = api.open(id)
    bad.request.write(line('bad', {}) + lines(6_000))
    expect((await bad.answer).body).toMatchObject({ code: 'invalid-item-input', errors: [{ line: 1 }] })
    bad.request.end()
    await api.upload(id, line('a'))
    await start(id)
    const late = api.open(id)
    late.request.write(lines(10))
    expect((await late.answer).body.code).toBe('operation-not-draft')
    late.request.end()
  })

  it('comes at once for a body that is too large', async () => {
    const large = api.open(await api.draft(), { ...NDJSON, 'content-length': String(1024 ** 3 + 1) })
    large.request.on('error', () => {})
    large.request.flushHeaders()
    expect((await large.answer).body.code).toBe('body-too-large')
    large.request.destroy()
  })
})

describe('uploads that come together', () => {
  it('one is taken, the others are told to wait', async () => {
    const id = await api.draft()
    const uploads = Array.from({ length: MAX_TENANT_UPLOADS }, (_, n) => {
      const upload = api.open(id)
      upload.request.write(lines(200, `u${n}-`))
      return upload
    })
    // All have begun before any ends.
    await until('one is live', async () => (await api.openUploads(id)).length === 1)
    for (const { request } of uploads) request.end()
    const answers = await Promise.all(uploads.map(({ answer }) => answer))
    const taken = answers.filter(({ status }) => status === 200)
    expect(answers.map(({ status }) => status).filter((status) => status !== 200 && status !== 409)).toEqual([])
    expect(taken.length).toBeGreaterThanOrEqual(1)
    expect(await api.rows(id)).toBe(200 * taken.length)
  })

  it('a draft that is started many times runs once, with all that was finished before', async () => {
    const id = await api.draft()
    await api.upload(id, lines(10))
    const answers = await Promise.all([
      ...Array.from({ length: 5 }, () => start(id)),
      ...Array.from({ length: 5 }, (_, n) => api.upload(id, lines(10, `n${n}-`))),
    ])
    const started = answers.slice(0, 5).filter(({ status }) => status === 202)
    const added = answers.slice(5).filter(({ status }) => status === 200)
    expect(started.length).toBeLessThanOrEqual(1)
    if (started.length === 0) expect((await start(id)).status).toBe(202)
    const { body } = await api.call('GET', `/operations/${id}/checkpoints`)
    const total = 10 + 10 * added.length
    expect(body.items.at(-1).to_ord).toBe(total)
    expect((await api.call('GET', `/operations/${id}`)).body.counts.total).toBe(total)
  })

  it('a process takes so many of a tenant at a time, and no more', async () => {
    const open = []
    for (let n = 0; n < MAX_TENANT_UPLOADS; n++) {
      const upload = api.open(await api.draft())
      upload.request.write(line(`k${n}`))
      open.push(upload)
    }
    const one = await api.draft()
    await until(
      'it is refused',
      async () => (await api.upload(one, line('a'), { ...NDJSON, 'if-match': '"0"' })).status === 503,
    )
    for (const { request } of open) request.end()
    expect((await Promise.all(open.map(({ answer }) => answer))).map(({ status }) => status)).toEqual(
      Array(MAX_TENANT_UPLOADS).fill(200),
    )
    expect((await api.upload(one, line('a'))).status).toBe(200)
  })
})
