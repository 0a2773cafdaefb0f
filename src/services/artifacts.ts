import { artifactStanding, LINK_SECONDS, whyGone } from '../domain/artifact.ts'
import { AppError } from '../domain/errors.ts'
import { LEDGER_EXPORT } from '../domain/ledger-export.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import { ObjectMissing } from '../objects/object-store.ts'
import { type ArtifactRow, readArtifact } from '../storage/artifacts.ts'
import { operationExists } from '../storage/operations.ts'
import type { ArtifactView, DownloadView } from './artifact-views.ts'
import type { ServiceContext } from './context.ts'
import { downloadPath, downloadsNotConfigured, isSignatureOf } from './download-links.ts'
import { type Principal, requireScope } from './principal.ts'
import type { DownloadRequest } from './requests.ts'
import { noOperation } from './require-operation.ts'

/** What reading artifacts takes besides the database. */
export interface Downloads {
  objects: ObjectStore
  /** Signs links; the same in every api process. Null: none was set, and nothing can be downloaded. */
  secret: string | null
}

type ArtifactContext = Pick<ServiceContext, 'database'> & { downloads: Downloads }

const standingOf = (row: ArtifactRow) =>
  artifactStanding({ superseded: row.supersededAt !== null, expired: row.expired })

/**
 * The artifact of an operation, with a fresh link as long as it can be downloaded. Errors: operation-not-found,
 * artifact-not-published, downloads-not-configured, forbidden.
 */
export const getArtifact = async (
  { database, downloads: { secret } }: ArtifactContext,
  principal: Principal,
  operationId: string,
): Promise<ArtifactView> => {
  const { tenantId } = principal
  const { exists, row } = await database.query(async (connection) => ({
    exists: await operationExists(connection, tenantId, operationId),
    row: await readArtifact(connection, { tenantId, operationId }),
  }))
  if (!exists) throw noOperation()
  if (!row) throw new AppError('artifact-not-published', 'the operation has published no artifact')
  if (row.type === LEDGER_EXPORT) requireScope(principal, 'ledger:read')
  if (secret === null) throw downloadsNotConfigured()
  const linkEnds = Math.min(row.nowSeconds + LINK_SECONDS, row.expiresSeconds)
  return {
    id: row.id,
    operationId: row.operationId,
    name: row.name,
    contentType: row.contentType,
    sizeBytes: row.sizeBytes,
    sha256: row.sha256,
    publishedAt: row.publishedAt,
    expiresAt: row.expiresAt,
    supersededAt: row.supersededAt,
    supersededBy: row.supersededBy,
    supersedeReason: row.supersedeReason,
    download:
      standingOf(row) === 'available'
        ? { path: downloadPath(secret, row.id, linkEnds), expiresAt: new Date(linkEnds * 1_000).toISOString() }
        : null,
  }
}

/**
 * The bytes behind a link. Errors: download-link-invalid, download-link-expired, artifact-not-found, artifact-gone,
 * downloads-not-configured.
 */
export const openDownload = async (
  { database, downloads: { objects, secret } }: ArtifactContext,
  link: DownloadRequest,
): Promise<DownloadView> => {
  if (secret === null) throw downloadsNotConfigured()
  if (!isSignatureOf(secret, link)) {
    throw new AppError('download-link-invalid', 'the signature does not fit the link: take a new one')
  }
  const row = await database.query((connection) => readArtifact(connection, { id: link.artifactId }))
  if (!row) throw new AppError('artifact-not-found', 'there is no such artifact')
  const standing = standingOf(row)
  if (standing !== 'available') throw new AppError('artifact-gone', whyGone(standing, row.supersedeReason))
  // an artifact that ends with its link has been answered already
  if (row.nowSeconds >= link.expiresSeconds) {
    throw new AppError('download-link-expired', 'the link has expired: take a new one from the operation')
  }
  return {
    name: row.name,
    contentType: row.contentType,
    sizeBytes: row.sizeBytes,
    sha256: row.sha256,
    content: await begun(objects.read(row.object)),
  }
}

/** Reads the first piece, so that what is missing is told before the answer has begun. */
const begun = async (content: AsyncIterable<Uint8Array>): Promise<AsyncIterable<Uint8Array>> => {
  const pieces = content[Symbol.asyncIterator]()
  const first = await pieces.next().catch((error: unknown) => {
    if (!(error instanceof ObjectMissing)) throw error
    throw new AppError('artifact-gone', 'the artifact was removed', { cause: error })
  })
  return (async function* () {
    try {
      for (let next = first; !next.done; next = await pieces.next()) yield next.value
    } finally {
      await pieces.return?.()
    }
  })()
}
