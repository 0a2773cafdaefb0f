import { createHash, timingSafeEqual } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { AppError, type ErrorCode } from '../domain/errors.ts'
import { SCOPES, type Scope } from '../domain/scope.ts'
import { DEFAULT_TENANT_ID, type Principal, requireScope } from '../services/principal.ts'
import type { HttpConfig, Services } from './deps.ts'
import type { KnownScrapers } from './known-scrapers.ts'
import { MAX_API_KEY_BYTES, MAX_JWT_BYTES, MAX_PRINCIPAL_BYTES } from './limits.ts'
import { byteLength, findTextFault } from './text.ts'
import type { TokenVerifier } from './tokens.ts'

/** Who may call a route: everybody, or a principal with the scope. */
export type Access = 'open' | Scope

const BEARER = /^bearer +([\x21-\x7e]+)$/i
const API_KEY_PREFIX = 'opl_'
/** Three parts in base64url; what they say is looked at by the verifier. */
const JWT = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** Where callers come from. */
interface Sources {
  config: HttpConfig
  services: Pick<Services, 'authenticate' | 'findTenant'>
  /** Null: nobody comes with a token. */
  tokens: TokenVerifier | null
  scrapers: KnownScrapers
}

/**
 * @throws AppError `unauthenticated`, `forbidden`, `token-keys-unavailable`, or `invalid-request` for an unusable `X-Principal`
 */
export const authenticate = async (request: FastifyRequest, scope: Scope, sources: Sources): Promise<Principal> => {
  const { auth, publicUrl } = sources.config
  const principal = auth === 'off' ? localPrincipal(request, publicUrl) : await bearerPrincipal(request, scope, sources)
  requireScope(principal, scope)
  return principal
}

/** AUTH=off: whoever reaches the loopback interface is who they say they are. */
const localPrincipal = (request: FastifyRequest, publicUrl: string | null): Principal => {
  refuseForeignHost(request, publicUrl)
  refuseForeignPage(request)
  const header = request.headers['x-principal']
  if (header === undefined) return { tenantId: DEFAULT_TENANT_ID, name: 'dev', scopes: SCOPES }
  const name = readUtf8(header).trim()
  if (name === '' || byteLength(name) > MAX_PRINCIPAL_BYTES || findTextFault(name) !== null) {
    const detail = `must be 1 to ${MAX_PRINCIPAL_BYTES} bytes of text`
    throw new AppError('invalid-request', `X-Principal ${detail}`, { errors: [{ detail, pointer: 'X-Principal' }] })
  }
  return { tenantId: DEFAULT_TENANT_ID, name, scopes: SCOPES }
}

const LOOPBACK_NAME = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i

/**
 * The name of any web page can be made to point to the loopback interface (DNS rebinding); its origin is then the host
 * that it names. A browser lets no page choose `Host`, so a name that is ours is what tells its requests apart.
 */
const refuseForeignHost = ({ headers }: FastifyRequest, publicUrl: string | null): void => {
  const host = headers.host ?? ''
  if (LOOPBACK_NAME.test(host) || (publicUrl !== null && isHostOf(publicUrl, host))) return
  throw new AppError(
    'forbidden',
    'Without API keys, the Host header must name the loopback interface (localhost, 127.0.0.1, [::1]) or the host of PUBLIC_URL',
  )
}

const isHostOf = (publicUrl: string, host: string): boolean => {
  const url = new URL(publicUrl)
  const named = host.toLowerCase()
  return named === url.host || (url.port === '' && named === `${url.host}:${url.protocol === 'https:' ? 443 : 80}`)
}

/**
 * Any web page that the developer has open could post to the loopback interface. Its browser then names the page's
 * origin, which is not ours.
 */
const refuseForeignPage = ({ headers }: FastifyRequest): void => {
  const { origin, host } = headers
  if (origin !== undefined && origin.replace(/^https?:\/\//, '') !== host)
    throw new AppError('forbidden', 'Without API keys, requests from web pages of other origins are refused')
}

/** Node hands header bytes over as latin1; names are sent as UTF-8. */
const readUtf8 = (header: string | string[]): string =>
  Buffer.from(Array.isArray(header) ? header.join(', ') : header, 'latin1').toString('utf8')

/** The key or token that is sent, without what may stand around it; null: none. */
export const bearerOf = ({ headers }: Pick<FastifyRequest, 'headers'>): string | null =>
  BEARER.exec(headers.authorization ?? '')?.[1] ?? null

export const isApiKey = (credential: string): boolean => credential.startsWith(API_KEY_PREFIX)

const bearerPrincipal = async (request: FastifyRequest, scope: Scope, sources: Sources): Promise<Principal> => {
  const { services, tokens } = sources
  const credential = bearerOf(request) ?? ''
  if (isApiKey(credential) && credential.length <= MAX_API_KEY_BYTES) return keyPrincipal(credential, scope, sources)
  if (tokens !== null && credential.length <= MAX_JWT_BYTES && JWT.test(credential))
    return tokenPrincipal(credential, tokens, services)
  const others = tokens === null ? '' : ', or a JWT'
  throw new AppError('unauthenticated', `Send an API key: Authorization: Bearer opl_…${others}`)
}

const AWAY: readonly ErrorCode[] = ['database-unavailable', 'overloaded']

const keyPrincipal = async (key: string, scope: Scope, { services, scrapers }: Sources): Promise<Principal> => {
  const keyHash = createHash('sha256').update(key).digest('hex')
  const isScrape = scope === 'metrics:read'
  const found = await services.authenticate(keyHash).catch((error: unknown) => {
    const isAway = error instanceof AppError && AWAY.includes(error.code)
    const known = isScrape && isAway ? scrapers.find(keyHash) : null
    if (known !== null) return known
    throw error
  })
  if (found === null || !isSame(found.keyHash, keyHash))
    throw new AppError('unauthenticated', 'The API key is unknown, expired or revoked')
  if (isScrape) scrapers.remember(found)
  return found.principal
}

const tokenPrincipal = async (
  token: string,
  tokens: TokenVerifier,
  services: Pick<Services, 'findTenant'>,
): Promise<Principal> => {
  const { tenant, name, scopes } = await tokens.verify(token)
  const tenantId = await services.findTenant(tenant)
  if (tenantId === null) throw new AppError('forbidden', 'The tenant that the token names is not known here')
  return { tenantId, name, scopes }
}

const isSame = (a: string, b: string): boolean =>
  byteLength(a) === byteLength(b) && timingSafeEqual(Buffer.from(a), Buffer.from(b))
