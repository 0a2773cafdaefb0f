import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import type { DownloadView } from '../../services/artifact-views.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { filterField } from '../fields.ts'
import { ArtifactResource, toArtifact } from '../resources/artifact.ts'
import { OperationParams, operationIdOf } from './operations.ts'

const TAGS = ['Artifacts']
const EXPIRES_DIGITS_MAX = 12

export const addArtifactRoutes = (app: App, { services, config }: RouteDeps): void => {
  app.get(
    '/operations/:id/artifact',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getArtifact',
        summary: 'The file that an operation has published',
        description:
          'With a link that is good for 15 minutes. Asking again gives a new one, as long as the file is kept.',
        params: OperationParams,
        response: {
          200: ArtifactResource,
          ...refusals({ 404: 'No such operation, or it has published nothing (yet).' }),
        },
      },
    },
    async (request) =>
      toArtifact(await services.getArtifact(request.principal, operationIdOf(request.params)), config.publicUrl),
  )

  app.get(
    '/artifacts/:id/download',
    {
      config: { access: 'open' },
      schema: {
        tags: TAGS,
        operationId: 'downloadArtifact',
        summary: 'Downloads an artifact',
        description: 'Follow `download.url` of the artifact as it is: it carries its own proof and needs no key.',
        security: [],
        params: z.object({ id: filterField }),
        querystring: z.object({
          expires: z.string().regex(new RegExp(`^\\d{1,${EXPIRES_DIGITS_MAX}}$`), 'must be a time in seconds'),
          signature: filterField,
        }),
        response: {
          200: {
            description: 'The file.',
            content: { 'application/octet-stream': { schema: z.string().meta({ format: 'binary' }) } },
          },
          ...refusals({
            403: 'The link is not valid, or has expired.',
            404: 'No such artifact.',
            410: 'It has expired, or was superseded.',
          }),
        },
      },
    },
    async (request, reply) => {
      const { expires, signature } = request.query
      const artifactId = parseId('art', request.params.id)
      if (artifactId === null) throw new AppError('artifact-not-found', 'there is no such artifact')
      const file = await services.openDownload({ artifactId, expiresSeconds: Number(expires), signature })
      return sendFile(reply, file)
    },
  )
}

const sendFile = (reply: FastifyReply, file: DownloadView): FastifyReply =>
  reply
    .header('content-type', file.contentType)
    .header('content-length', file.sizeBytes)
    .header('content-disposition', `attachment; filename="${file.name}"`)
    .header('cache-control', 'private, no-store')
    .header('etag', `"${file.sha256}"`)
    .header('repr-digest', `sha-256=:${Buffer.from(file.sha256, 'hex').toString('base64')}:`)
    .send(Readable.from(file.content, { objectMode: false }))
