import { z } from 'zod'
import { SUPERSEDE_REASONS } from '../../domain/artifact.ts'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339, toRfc3339OrNull } from '../../domain/times.ts'
import type { ArtifactView } from '../../services/artifact-views.ts'
import { openEnum, time } from '../fields.ts'

export const ArtifactResource = z
  .object({
    id: z.string(),
    operation_id: z.string(),
    name: z.string().describe('Of the file.'),
    content_type: z.string(),
    size_bytes: z.int(),
    sha256: z.string().describe('Of the whole file, hex; the download has it as its ETag.'),
    published_at: time,
    expires_at: time.describe('It is removed then.'),
    superseded_at: time.nullable(),
    superseded_by: z.string().nullable().describe('The artifact that took its place.'),
    supersede_reason: openEnum(SUPERSEDE_REASONS, 'Why it was superseded.').nullable(),
    download: z
      .object({
        url: z.string().describe('Needs no key: whoever has the link can download.'),
        expires_at: time.describe('Of the link; ask again for another.'),
      })
      .nullable()
      .describe('Null when it has expired or was superseded.'),
  })
  .meta({ id: 'Artifact' })

export const toArtifact = (view: ArtifactView, publicUrl: string | null): z.infer<typeof ArtifactResource> => ({
  id: formatId('art', view.id),
  operation_id: formatId('op', view.operationId),
  name: view.name,
  content_type: view.contentType,
  size_bytes: view.sizeBytes,
  sha256: view.sha256,
  published_at: toRfc3339(view.publishedAt),
  expires_at: toRfc3339(view.expiresAt),
  superseded_at: toRfc3339OrNull(view.supersededAt),
  superseded_by: view.supersededBy === null ? null : formatId('art', view.supersededBy),
  supersede_reason: view.supersedeReason,
  download: view.download && {
    url: `${publicUrl ?? ''}${view.download.path}`,
    expires_at: toRfc3339(view.download.expiresAt),
  },
})
