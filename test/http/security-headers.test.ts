/** What browsers are told, of every route by construction, whatever it answers. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Edge, openEdge } from './fake-services.ts'

let open: Edge
let guarded: Edge
let root: string
let routes: [method: string, url: string][]

beforeAll(async () => {
  root = mkdtempSync(path.join(os.tmpdir(), 'opledger-headers-'))
  mkdirSync(path.join(root, 'assets'))
  writeFileSync(path.join(root, 'assets/index-abc.js'), 'console.log(1)')
  writeFileSync(path.join(root, 'index.html'), '<!doctype html><title>console</title>')
  open = await openEdge({}, undefined, { consoleDirectory: root })
  guarded = await openEdge({ auth: 'keys' }, undefined, { consoleDirectory: root })
  const { paths } = (await open.app.inject('/openapi.json')).json() as { paths: Record<string, object> }
  routes = Object.entries(paths).flatMap(([route, methods]) =>
    Object.keys(methods).map((method): [string, string] => [method.toUpperCase(), route.replaceAll(/\{\w+\}/g, 'x')]),
  )
})
afterAll(async () => {
  await open.app.close()
  await guarded.app.close()
  rmSync(root, { recursive: true })
})

const policyOf = (header: unknown): Map<string, string> =>
  new Map(
    String(header)
      .split(';')
      .map((directive) => directive.trim().split(/\s+/))
      .map(([name = '', ...values]) => [name, values.join(' ')]),
  )

/** What any answer has to say. */
const expectSecured = (what: string, headers: Record<string, unknown>, defaultSource = "'none'"): void => {
  expect({ what, ...headers }).toMatchObject({
    what,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-resource-policy': 'same-origin',
    'x-frame-options': 'SAMEORIGIN',
  })
  const policy = policyOf(headers['content-security-policy'])
  expect([what, policy.get('default-src')]).toEqual([what, defaultSource])
  expect([what, policy.get('frame-ancestors'), policy.get('base-uri')]).toEqual([what, "'none'", "'none'"])
  // no other origin may read an answer, and nothing tells what we are made of
  expect(Object.keys(headers).filter((name) => /^(access-control-|server$|x-powered-by$)/.test(name))).toEqual([])
}

describe('every route of the document', () => {
  it('says so when it answers, when it refuses, and when it knows nobody', async () => {
    const statuses = new Set<number>()
    for (const [method, url] of routes) {
      for (const { app } of [open, guarded]) {
        for (const change of [{}, { payload: 'x' }, { headers: { accept: 'image/png' } }]) {
          const answer = await app.inject({ method: method as 'GET', url, ...change })
          statuses.add(answer.statusCode)
          expectSecured(`${method} ${url} → ${answer.statusCode}`, answer.headers)
        }
      }
    }
    expect(routes.length).toBeGreaterThan(50)
    expect([...statuses]).toEqual(expect.arrayContaining([200, 400, 401, 404, 406, 415]))
  })

  it('says so under methods that it does not have', async () => {
    for (const [, url] of routes)
      for (const method of ['OPTIONS', 'TRACE', 'DELETE', 'HEAD'] as const)
        expectSecured(`${method} ${url}`, (await open.app.inject({ method: method as 'HEAD', url })).headers)
  })
})

it.each([
  '/nowhere',
  '/%zz',
  '/operations/%ff',
  `/operations?type=${'x'.repeat(9_000)}`,
  '/openapi.json',
  '/operations?type=%00',
])('so does %s', async (url) => expectSecured(url.slice(0, 40), (await open.app.inject(url)).headers))

it.each(['/docs', '/docs/', '/docs/static/swagger-ui.css', '/docs/static/nope'])('so does %s', async (url) => {
  expectSecured(url, (await open.app.inject(url)).headers, "'self'")
})

it.each(['/console', '/console/operations/op_1', '/console/assets/index-abc.js', '/console/assets/gone.js'])(
  'so does %s, which runs scripts of its own and nothing inline',
  async (url) => {
    const { headers, statusCode } = await guarded.app.inject(url)
    expectSecured(url, headers)
    if (statusCode !== 200) return
    const policy = policyOf(headers['content-security-policy'])
    expect(policy.get('script-src')).toBe("'self'")
    expect(policy.get('connect-src')).toBe("'self'")
    expect([...policy.values()].join(' ')).not.toMatch(/unsafe|http|\*|data:/)
  },
)

describe('answers that Node gives', () => {
  const ask = async (text: string): Promise<Record<string, string>> => {
    const socket = connect((open.app.server.address() as AddressInfo).port, '127.0.0.1')
    socket.end(text)
    let answer = ''
    for await (const chunk of socket) answer += String(chunk)
    const [head = ''] = answer.split('\r\n\r\n')
    return Object.fromEntries(
      head
        .split('\r\n')
        .slice(1)
        .map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]),
    )
  }
  beforeAll(() => open.app.listen({ port: 0, host: '127.0.0.1' }))

  it.each([
    ['to rubbish', 'rubbish\r\n\r\n'],
    ['to too large headers', `GET / HTTP/1.1\r\nhost: x\r\na: ${'x'.repeat(20_000)}\r\n\r\n`],
    ['to expectations', 'GET /livez HTTP/1.1\r\nhost: localhost\r\nexpect: tea\r\nconnection: close\r\n\r\n'],
  ])('%s', async (what, text) => expectSecured(what, await ask(text)))
})
