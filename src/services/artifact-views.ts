import type { DbTime } from './views.ts'

export interface ArtifactView {
  id: string
  operationId: string
  name: string
  contentType: string
  sizeBytes: number
  /** Hex. */
  sha256: string
  publishedAt: DbTime
  expiresAt: DbTime
  supersededAt: DbTime | null
  supersededBy: string | null
  /** `newer` or `cancel`. */
  supersedeReason: string | null
  /** Null: it cannot be downloaded any more. */
  download: { path: string; expiresAt: DbTime } | null
}

export interface DownloadView {
  name: string
  contentType: string
  sizeBytes: number
  /** Hex. */
  sha256: string
  /** The next piece is read when it is asked for. */
  content: AsyncIterable<Uint8Array>
}
