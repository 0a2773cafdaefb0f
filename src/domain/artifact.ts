/**
 * Artifacts: a file that an operation makes of chunks and publishes as its last step. Where its bytes stand in the object
 * store, what a written chunk is known by, when it may be published, and what a download link may still be used for.
 */
import { assertNever } from './assert.ts'

/** The key of the last item of an artifact operation: the one that publishes. */
export const PUBLISH_KEY = 'publish'
/** As many as there are inline items of any other operation, the publish left out. */
export const CHUNKS_MAX = 10_000
export const CHUNK_BYTES_MAX = 1024 ** 3
/** What S3 takes as one object in one request. */
export const ARTIFACT_BYTES_MAX = 5 * 1024 ** 3
export const ARTIFACT_KEY_BYTES_MAX = 1_000
export const FILE_NAME_LENGTH_MAX = 150
export const LINK_SECONDS = 15 * 60
/** A last look at the objects of an operation that is over: a worker that was paused may have written one more. */
export const STRAGGLER_HOURS = 24

interface OperationName {
  tenantId: number
  operationId: string
}

/** Holds the chunks of one operation and nothing else. */
export const chunkFolder = ({ tenantId, operationId }: OperationName): string => `tmp/${tenantId}/${operationId}`

/** Each send has an object of its own: a worker that is late never writes into what its successor wrote. */
export const chunkObject = (operation: OperationName, ord: number, send: number): string =>
  `${chunkFolder(operation)}/${ord}-${send}`

/** Holds what an operation tried to publish: one object per try, of which a row names at most one. */
export const artifactFolder = ({ tenantId, operationId }: OperationName): string =>
  `artifacts/${tenantId}/${operationId}`

export const artifactObject = (operation: OperationName, artifactId: string): string =>
  `${artifactFolder(operation)}/${artifactId}`

/** A chunk as it was written. */
export interface WrittenChunk {
  object: string
  sizeBytes: number
  /** Hex. */
  sha256: string
}

/** How a chunk stands in the ledger: as its effect's reference. */
export const formatChunkRef = ({ object, sizeBytes, sha256 }: WrittenChunk): string =>
  `${object} size=${sizeBytes} sha256=${sha256}`

const CHUNK_REF = /^(\S+) size=(\d{1,15}) sha256=([0-9a-f]{64})$/

export const parseChunkRef = (ref: string | null): WrittenChunk | null => {
  const [, object, size, sha256] = CHUNK_REF.exec(ref ?? '') ?? []
  return object === undefined || sha256 === undefined ? null : { object, sizeBytes: Number(size), sha256 }
}

export interface PublishFacts {
  /** Chunks that nobody has taken in hand yet. */
  unclaimed: number
  /** Chunks whose write is under way, or whose outcome could not be stored. */
  inFlight: number
  /** Chunks that are tried again. */
  waiting: number
}

/** A publish begins when no chunk can change any more: what is missing then stays missing, and the publish fails. */
export const mayPublish = ({ unclaimed, inFlight, waiting }: PublishFacts): boolean =>
  unclaimed === 0 && inFlight === 0 && waiting === 0

export const SUPERSEDE_REASONS = ['newer', 'cancel'] as const
export type SupersedeReason = (typeof SUPERSEDE_REASONS)[number]

export type ArtifactStanding = 'available' | 'superseded' | 'expired'

export const artifactStanding = (facts: { superseded: boolean; expired: boolean }): ArtifactStanding =>
  facts.superseded ? 'superseded' : facts.expired ? 'expired' : 'available'

/** Why an artifact cannot be downloaded any more, for people. */
export const whyGone = (standing: Exclude<ArtifactStanding, 'available'>, reason: SupersedeReason | null): string => {
  switch (standing) {
    case 'expired':
      return 'the artifact has expired'
    case 'superseded':
      return reason === 'cancel'
        ? 'the operation was cancelled after the artifact was published'
        : 'a newer artifact has taken its place'
    default:
      return assertNever(standing)
  }
}

/** A name that every file system and every `Content-Disposition` takes. */
export const safeFileName = (name: string): string => {
  const safe = name.replace(/[^A-Za-z0-9._-]+/g, '-').replace(/^[.-]+/, '')
  return safe === '' ? 'artifact' : safe.slice(0, FILE_NAME_LENGTH_MAX)
}
