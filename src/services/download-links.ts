/**
 * Links to artifacts. A link carries its own proof, so that a browser or a tool without a key can follow it: an HMAC over
 * the artifact and the second at which the link ends. All api processes share the secret. Times are the database's.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'

const sign = (secret: string, artifactId: string, expiresSeconds: number): Buffer =>
  createHmac('sha256', secret).update(`opledger download v1\n${artifactId}\n${expiresSeconds}`).digest()

/** The path of a link. */
export const downloadPath = (secret: string, artifactId: string, expiresSeconds: number): string => {
  const signature = sign(secret, artifactId, expiresSeconds).toString('base64url')
  return `/artifacts/${formatId('art', artifactId)}/download?expires=${expiresSeconds}&signature=${signature}`
}

export const isSignatureOf = (
  secret: string,
  link: { artifactId: string; expiresSeconds: number; signature: string },
): boolean => {
  const given = Buffer.from(link.signature, 'base64url')
  const expected = sign(secret, link.artifactId, link.expiresSeconds)
  return given.length === expected.length && timingSafeEqual(given, expected)
}

export const downloadsNotConfigured = (): AppError =>
  new AppError(
    'downloads-not-configured',
    'this api process has no OPLEDGER_DOWNLOAD_SECRET, so what is published could not be downloaded',
  )
