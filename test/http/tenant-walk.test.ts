/**
 * Every route of the OpenAPI document, by construction, against a running service: without a key 401; with every scope but
 * the one that it needs 403, which names it; with that scope alone, but of another tenant, nothing of the owner's is there.
 * The owner is served, so that none of it says something about ids that nobody has.
 */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SCOPES, type Scope } from '../../src/domain/scope.ts'
import { ROUTE_WALKS } from '../support/route-walks.ts'
import { type Answer, MARK, openTenantWorld, type TenantWorld } from '../support/tenant-world.ts'

interface Route {
  operationId: string
  method: string
  path: string
  /** Null: open to everybody. */
  scope: Scope | null
}

interface DocumentedOperation {
  operationId: string
  security?: { apiKey?: Scope[] }[]
}

const document = JSON.parse(readFileSync(new URL('../../openapi/openapi.json', import.meta.url), 'utf8')) as {
  paths: Record<string, Record<string, DocumentedOperation>>
}
const ROUTES: Route[] = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { operationId, security = [] }]) => ({
    operationId,
    method: method.toUpperCase(),
    path,
    scope: security[0]?.apiKey?.[0] ?? null,
  })),
)
const OPEN = ['receiveCallback', 'downloadArtifact', 'getLiveness', 'getReadiness', 'getProblem']
const guarded = ROUTES.filter(({ scope }) => scope !== null)
const opened = ROUTES.filter(({ scope }) => scope === null)

let world: TenantWorld
const strangerKeys = new Map<Scope | null, string>()
const lackingKeys = new Map<Scope, string>()
let secondKey: string

beforeAll(async () => {
  world = await openTenantWorld()
  const { owner, stranger } = world.tenants
  for (const scope of SCOPES) {
    strangerKeys.set(scope, await world.keyOf(stranger, 'stranger', [scope]))
    lackingKeys.set(
      scope,
      await world.keyOf(
        owner,
        `${MARK}-lacks`,
        SCOPES.filter((other) => other !== scope),
      ),
    )
  }
  secondKey = await world.keyOf(owner, `${MARK}-second`, SCOPES)
}, 240_000)
afterAll(() => world?.close())

const walkOf = ({ operationId }: Route) => {
  const walk = ROUTE_WALKS[operationId]
  if (!walk) throw new Error(`the route ${operationId} is not walked`)
  return walk
}
const ask = (route: Route, key: string | null) => world.call(route.method, key, walkOf(route).ask(world.owned))
const STRANGER_LACKS = (route: Route) => strangerKeys.get(route.scope) ?? null

/** What it tells, without the path, which the caller knows. */
const told = ({ text, body }: Answer): string => {
  if (body === null) return text
  const { instance: _, ...rest } = body
  return JSON.stringify(rest)
}
/** The ids of the owner that are no part of the request. */
const expectNothingOf = (answer: Answer, path: string, body: unknown): void => {
  const asked = `${path} ${JSON.stringify(body ?? null)}`
  const tells = told(answer)
  expect(tells.includes(MARK) && !asked.includes(MARK), tells).toBe(false)
  for (const id of Object.values(world.owned)) if (!asked.includes(id)) expect(tells).not.toContain(id)
}

describe('the table', () => {
  it('has every route of the document, and no other', () => {
    expect(Object.keys(ROUTE_WALKS).sort()).toEqual(ROUTES.map(({ operationId }) => operationId).sort())
  })

  it('knows which routes are open to everybody', () => {
    expect(opened.map(({ operationId }) => operationId).sort()).toEqual([...OPEN].sort())
  })

  it('needs the document that the service gives out', async () => {
    const { body } = await world.call('GET', null, { path: '/openapi.json' })
    expect(body.paths).toEqual(document.paths)
  })
})

describe.each(guarded)('$method $path', (route) => {
  it('asks for a key', async () => {
    for (const key of [null, 'opl_nobodys']) {
      const answer = await ask(route, key)
      expect([answer.status, answer.body.code]).toEqual([401, 'unauthenticated'])
      expectNothingOf(answer, '', null)
    }
    if (route.method === 'GET')
      expect((await world.call('HEAD', null, walkOf(route).ask(world.owned))).status).toBe(401)
  })

  it(`asks for the scope ${route.scope}`, async () => {
    const answer = await ask(route, lackingKeys.get(route.scope as Scope) ?? '')
    expect([answer.status, answer.body.code, answer.body.scope]).toEqual([403, 'forbidden', route.scope])
    expect(answer.body.detail).toContain(route.scope)
    expectNothingOf(answer, '', null)
  })

  it('shows another tenant nothing', async () => {
    const walk = walkOf(route)
    const { path, body } = walk.ask(world.owned)
    const answer = await ask(route, STRANGER_LACKS(route))
    expect(answer.status, answer.text).toBe(walk.stranger)
    expectNothingOf(answer, path, body)
  })
})

describe.each(opened)('$method $path, open to everybody', (route) => {
  it('shows nothing of the owner', async () => {
    const walk = walkOf(route)
    const { path, body } = walk.ask(world.owned)
    const answer = await ask(route, null)
    expect(answer.status, answer.text).toBe(walk.stranger)
    expectNothingOf(answer, path, body)
  })
})

describe('the owner', () => {
  // last, as it changes what there is; by a second person, as nobody approves what they asked for
  it.each(ROUTES.filter(({ operationId }) => operationId !== 'receiveCallback'))(
    'is served: $method $path',
    async (route) => {
      const { ask: asks, ownerAsks = asks } = walkOf(route)
      const answer = await world.call(route.method, secondKey, ownerAsks(world.owned))
      expect([401, 403, 404, 400], answer.text).not.toContain(answer.status)
      expect(answer.status, answer.text).toBeLessThan(500)
    },
  )
})
