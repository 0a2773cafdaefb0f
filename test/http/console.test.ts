import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { gunzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openEdge } from './fake-services.ts'

const SCRIPT = `console.log(${JSON.stringify('x'.repeat(2_000))})`

describe('/console', () => {
  let root: string
  let directory: string
  let edge: Awaited<ReturnType<typeof openEdge>>

  const build = (page = '<!doctype html><title>console</title>'): void => {
    mkdirSync(path.join(directory, 'assets'), { recursive: true })
    writeFileSync(path.join(directory, 'assets/index-abc.js'), SCRIPT)
    writeFileSync(path.join(directory, 'assets/secret.key'), 'not a file of the web')
    writeFileSync(path.join(directory, 'index.html'), page)
  }
  beforeEach(async () => {
    root = mkdtempSync(path.join(os.tmpdir(), 'opledger-console-'))
    directory = path.join(root, 'console')
    edge = await openEdge({ auth: 'keys' }, undefined, { consoleDirectory: directory })
  })
  afterEach(async () => {
    await edge.app.close()
    rmSync(root, { recursive: true })
  })

  it.each(['/console', '/console/', '/console/operations/op_1?state=failed', '/console/assets/index-abc.js'])(
    'says at %s that it is not built, and is there without a restart',
    async (url) => {
      const before = await edge.app.inject(url)
      expect([before.statusCode, before.headers['cache-control']]).toEqual([503, 'no-store'])
      expect(before.headers['content-type']).toMatch(/^text\/html/)
      expect(before.body).toContain('npm run build:console')
      build()
      expect((await edge.app.inject(url)).statusCode).toBe(200)
    },
  )

  it('says that it is being built, as long as somebody builds it', async () => {
    const mark = `${directory}.building`
    writeFileSync(mark, '1')
    expect((await edge.app.inject('/console')).body).toContain('is being built')
    const longAgo = new Date(Date.now() - 3_600_000)
    utimesSync(mark, longAgo, longAgo)
    expect((await edge.app.inject('/console')).body).toContain('is not built')
  })

  it('is the page under every path, open to everybody, under a strict policy', async () => {
    build()
    for (const url of [
      '/console',
      '/console/',
      '/console/index.html',
      '/console/operations/op_1/items/a%2Fb?x=1',
      '/console/..%2f..%2fetc/passwd',
    ]) {
      const answer = await edge.app.inject(url)
      expect([url, answer.statusCode, answer.body]).toEqual([url, 200, '<!doctype html><title>console</title>'])
      expect(answer.headers['cache-control']).toBe('no-cache')
      const policy = String(answer.headers['content-security-policy'])
      expect(policy).toContain("default-src 'none'")
      expect(policy).toContain("script-src 'self'")
      expect(policy).not.toMatch(/unsafe|https?:|\*|data:/)
      expect(answer.headers['x-content-type-options']).toBe('nosniff')
    }
  })

  it('has files that never change, and says so; what is gone is not the page', async () => {
    build()
    const script = await edge.app.inject('/console/assets/index-abc.js')
    expect([script.statusCode, script.body]).toEqual([200, SCRIPT])
    expect(script.headers['content-type']).toMatch(/^text\/javascript/)
    expect(script.headers['cache-control']).toBe('public, max-age=31536000, immutable')
    for (const url of ['/console/assets/index-old.js', '/console/assets/secret.key', '/console/assets/']) {
      const gone = await edge.app.inject(url)
      expect([url, gone.statusCode, gone.json().code]).toEqual([url, 404, 'not-found'])
    }
  })

  it('answers 304 to who has it, and packs it for who can unpack', async () => {
    build()
    const first = await edge.app.inject('/console/assets/index-abc.js')
    const etag = String(first.headers.etag)
    const again = await edge.app.inject({ url: '/console/assets/index-abc.js', headers: { 'if-none-match': etag } })
    expect([again.statusCode, again.body]).toEqual([304, ''])
    const packed = await edge.app.inject({
      url: '/console/assets/index-abc.js',
      headers: { 'accept-encoding': 'br, gzip' },
    })
    expect(packed.headers['content-encoding']).toBe('gzip')
    expect(packed.headers.vary).toContain('accept-encoding')
    expect(gunzipSync(packed.rawPayload).toString()).toBe(SCRIPT)
    const refused = await edge.app.inject({
      url: '/console/assets/index-abc.js',
      headers: { 'accept-encoding': 'gzip;q=0' },
    })
    expect(refused.headers['content-encoding']).toBeUndefined()
  })

  it('shows a new build at the next look', async () => {
    build()
    await edge.app.inject('/console')
    build('<!doctype html><title>newer</title>')
    const later = new Date(Date.now() + 5_000)
    utimesSync(path.join(directory, 'index.html'), later, later)
    expect((await edge.app.inject('/console')).body).toContain('newer')
  })

  it('answers HEAD, and refuses what is no reading', async () => {
    build()
    expect((await edge.app.inject({ method: 'HEAD', url: '/console' })).statusCode).toBe(200)
    const post = await edge.app.inject({ method: 'POST', url: '/console/operations', payload: {} })
    expect([post.statusCode, post.headers.allow]).toEqual([405, 'GET, HEAD'])
  })
})
