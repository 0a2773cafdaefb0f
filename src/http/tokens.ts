/**
 * Callers known by a JWT (RFC 7519) of somebody else: of one issuer, for one audience, signed with a key of its JWKS (RFC 7517).
 * Only asymmetric algorithms are taken, so nothing that this service knows can be used to make a token, and `none` is none.
 *
 * The keys are fetched when the first token comes, kept for JWKS_CACHE_MS, and fetched again for a key that is not among
 * them, at most every JWKS_COOLDOWN_MS. While they cannot be fetched, tokens are answered 503; API keys are not touched. After a
 * fetch that failed the next one waits for JWKS_FAILED_MS: callers neither wait for an issuer that is down nor keep it down.
 */
import type { JWTVerifyGetKey } from 'jose'
import { AppError } from '../domain/errors.ts'
import { knownScopes, type Scope } from '../domain/scope.ts'
import {
  JWKS_CACHE_MS,
  JWKS_COOLDOWN_MS,
  JWKS_FAILED_MS,
  JWKS_TIMEOUT_MS,
  JWT_CLOCK_TOLERANCE_SECONDS,
  MAX_JWKS_BYTES,
  MAX_PRINCIPAL_BYTES,
} from './limits.ts'
import { byteLength, findTextFault } from './text.ts'

export interface TokenSettings {
  /** `iss`, exactly. */
  issuer: string
  /** Among `aud`. */
  audience: string
  jwksUrl: string
  /** The tenant of every token; null: `tenantClaim` names it. */
  tenant: string | null
  tenantClaim: string
  nameClaim: string
  scopesClaim: string
}

/** Who a token says is asking. */
export interface TokenCaller {
  /** Its name. */
  tenant: string
  name: string
  scopes: Scope[]
}

export interface TokenVerifier {
  /** @throws AppError `unauthenticated`, `forbidden` (no tenant), `token-keys-unavailable` */
  verify(token: string): Promise<TokenCaller>
}

const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519']

type Claims = Readonly<Record<string, unknown>>

/** The keys could not be fetched: not the caller's fault. */
class KeysUnavailable extends Error {}

export const openTokenVerifier = async (settings: TokenSettings): Promise<TokenVerifier> => {
  const { createRemoteJWKSet, customFetch, errors, jwtVerify } = await import('jose')
  let failedAtMs = Number.NEGATIVE_INFINITY
  const hasFailed = (): boolean => performance.now() < failedAtMs + JWKS_FAILED_MS
  const fetched = createRemoteJWKSet(new URL(settings.jwksUrl), {
    timeoutDuration: JWKS_TIMEOUT_MS,
    cooldownDuration: JWKS_COOLDOWN_MS,
    cacheMaxAge: JWKS_CACHE_MS,
    [customFetch]: (url: string, options: RequestInit) => {
      if (hasFailed()) throw new Error('a fetch has failed a moment ago')
      return fetchBounded(url, options)
    },
  })
  const keyOf: JWTVerifyGetKey = async (header, token) => {
    try {
      return await fetched(header, token)
    } catch (error) {
      const isToken =
        error instanceof errors.JWKSNoMatchingKey ||
        error instanceof errors.JWKSMultipleMatchingKeys ||
        error instanceof errors.JOSENotSupported
      if (isToken) throw error
      if (!hasFailed()) failedAtMs = performance.now()
      throw new KeysUnavailable('the keys of tokens could not be fetched', { cause: error })
    }
  }
  const whyNot = (error: unknown): string => {
    if (error instanceof errors.JWTExpired) return 'has expired'
    if (error instanceof errors.JWTClaimValidationFailed)
      return `has a claim "${error.claim}" that is not as it must be`
    if (error instanceof errors.JOSEAlgNotAllowed) return 'is signed with an algorithm that is not taken'
    if (error instanceof errors.JWKSNoMatchingKey) return 'is signed with a key that its issuer does not publish'
    return 'is none that this service takes'
  }
  return {
    async verify(token) {
      try {
        const { payload } = await jwtVerify(token, keyOf, {
          issuer: settings.issuer,
          audience: settings.audience,
          algorithms: ALGORITHMS,
          clockTolerance: JWT_CLOCK_TOLERANCE_SECONDS,
          requiredClaims: ['exp'],
        })
        return callerOf(payload, settings)
      } catch (error) {
        if (error instanceof AppError) throw error
        if (error instanceof KeysUnavailable) {
          throw new AppError('token-keys-unavailable', 'Tokens cannot be checked now; API keys can', { cause: error })
        }
        throw new AppError('unauthenticated', `The token ${whyNot(error)}`, { cause: error })
      }
    },
  }
}

const callerOf = (claims: Claims, { tenant, tenantClaim, nameClaim, scopesClaim }: TokenSettings): TokenCaller => {
  const name = textOf(claims, nameClaim)
  if (name === null) {
    throw new AppError(
      'unauthenticated',
      `The token names nobody: its claim "${nameClaim}" must be a text of at most ${MAX_PRINCIPAL_BYTES} bytes`,
    )
  }
  const named = tenant ?? textOf(claims, tenantClaim)
  if (named === null) {
    throw new AppError('forbidden', `The token names no tenant: its claim "${tenantClaim}" must be the name of one`)
  }
  return { tenant: named, name, scopes: scopesOf(ownClaim(claims, scopesClaim)) }
}

const ownClaim = (claims: Claims, name: string): unknown => (Object.hasOwn(claims, name) ? claims[name] : undefined)

/** One that names something and can be looked up. */
const textOf = (claims: Claims, name: string): string | null => {
  const value = ownClaim(claims, name)
  if (typeof value !== 'string' || value.trim() === '') return null
  return byteLength(value) <= MAX_PRINCIPAL_BYTES && findTextFault(value) === null ? value : null
}

/** A text with spaces between (RFC 8693), or a list. Names that are none of ours grant nothing. */
const scopesOf = (claim: unknown): Scope[] => {
  const names = typeof claim === 'string' ? claim.split(' ') : Array.isArray(claim) ? claim.map(String) : []
  return knownScopes(names)
}

/** No redirect is followed, and no more is read than keys can need. */
const fetchBounded = async (url: string, options: RequestInit): Promise<Response> => {
  const response = await fetch(url, { ...options, redirect: 'error' })
  const pieces: Uint8Array[] = []
  let bytes = 0
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength
    if (bytes > MAX_JWKS_BYTES) throw new Error(`the keys of tokens have more than ${MAX_JWKS_BYTES} bytes`)
    pieces.push(piece)
  }
  return new Response(Buffer.concat(pieces), { status: response.status, headers: response.headers })
}
