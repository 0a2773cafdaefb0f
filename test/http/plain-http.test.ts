import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Edge, openEdge } from './fake-services.ts'

let edge: Edge
beforeAll(async () => {
  edge = await openEdge()
})
afterAll(() => edge.app.close())

/** The directives of a Content-Security-Policy by their names. */
const policyOf = (header: unknown): Map<string, string> =>
  new Map(
    String(header)
      .split(';')
      .map((directive) => directive.trim())
      .filter((directive) => directive !== '')
      .map((directive) => {
        const [name = '', ...values] = directive.split(/\s+/)
        return [name, values.join(' ')]
      }),
  )

// A browser that obeyed either of the two would load nothing of /docs from a service without TLS.
it.each(['/livez', '/operations', '/problems/internal', '/docs', '/docs/', '/docs/static/swagger-ui.css'])(
  '%s sends no browser to https, and nobody may frame it',
  async (url) => {
    const { headers } = await edge.app.inject(url)
    expect(headers).not.toHaveProperty('strict-transport-security')
    const policy = policyOf(headers['content-security-policy'])
    expect(policy.has('upgrade-insecure-requests')).toBe(false)
    expect(policy.get('frame-ancestors')).toBe("'none'")
    expect(policy.get('base-uri')).toBe("'none'")
    expect(policy.get('default-src')).toBe(url.startsWith('/docs') ? "'self'" : "'none'")
    expect([...policy.values()].join(' ')).not.toContain('http')
  },
)

it('serves whatever the documentation page loads, and none of it stands in the page', async () => {
  const page = await edge.app.inject('/docs/')
  const sources = [...page.body.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1] ?? '')
  expect(sources.length).toBeGreaterThan(4)
  for (const source of sources) {
    const { pathname } = new URL(source, 'http://service/docs/')
    expect([source, (await edge.app.inject(pathname)).statusCode]).toEqual([source, 200])
  }
  // the policy would not run it
  expect(page.body).not.toMatch(/<script(?![^>]*\bsrc=)/)
})
