import type { IncomingMessage } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import type { UploadRequest } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { matchVersionOf } from '../conditions.ts'
import { readCsvRows } from '../csv-rows.ts'
import { CSV, NDJSON } from '../exports.ts'
import { textField } from '../fields.ts'
import { idempotencyKeyOf } from '../idempotency-keys.ts'
import { MAX_CSV_COLUMN_BYTES, MAX_CSV_COLUMNS, MAX_ROW_BYTES, MAX_UPLOAD_BYTES } from '../limits.ts'
import { readNdjsonRows } from '../ndjson-rows.ts'
import { OperationResource } from '../resources/operation.ts'
import { discardRest, openUploadBody, tooLarge } from '../upload-body.ts'
import { UploadPlaces } from '../upload-places.ts'
import {
  answerOperation,
  ConditionHeaders,
  OPERATION_TAGS,
  OperationParams,
  operationIdOf,
  ReasonBody,
} from './operations.ts'

const DEFAULT_KEY_COLUMN = 'key'

const UploadQuery = z.strictObject({
  key: textField(MAX_CSV_COLUMN_BYTES)
    .optional()
    .describe(`With CSV: the column that holds the item keys; \`${DEFAULT_KEY_COLUMN}\` when left out.`),
})

const UploadedResource = z
  .object({
    added: z.int().describe('Items of this upload.'),
    total: z.int().describe('Items of the draft, when this upload was finished.'),
  })
  .meta({ id: 'Uploaded' })

export const addUploadRoutes = async (app: App, deps: RouteDeps): Promise<void> => {
  // A scope of its own: no other route reads these media types, and this one reads no others.
  await app.register(async (scope: App) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser([NDJSON, CSV], (_request: FastifyRequest, body: IncomingMessage, done) =>
      done(null, body),
    )
    scope.addContentTypeParser('*', (_request: FastifyRequest, _body: IncomingMessage, done) => done(unreadable()))
    addUpload(scope, deps)
  })
  addStart(app, deps)
}

const unreadable = (): AppError =>
  new AppError('unsupported-media-type', `This route reads ${NDJSON} and ${CSV}, in UTF-8`)

/** @throws AppError `unsupported-media-type` for other types, also where there is no body */
const formatOf = (header: string | undefined): 'ndjson' | 'csv' => {
  const [type, ...parameters] = (header ?? '').split(';').map((part) => part.trim().toLowerCase())
  const charset = parameters.find((parameter) => parameter.startsWith('charset='))?.slice('charset='.length)
  if (charset !== undefined && !/^"?(utf-?8|us-ascii)"?$/.test(charset)) throw unreadable()
  if (type === NDJSON) return 'ndjson'
  if (type === CSV) return 'csv'
  throw unreadable()
}

const addUpload = (app: App, { services }: RouteDeps): void => {
  const places = new UploadPlaces()
  app.post(
    '/operations/:id/items',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE], readsStream: true },
      schema: {
        tags: OPERATION_TAGS,
        operationId: 'uploadItems',
        summary: 'Upload items to a draft',
        description: `One item a line as \`{"key", "input"}\`, or CSV with a header (at most ${MAX_CSV_COLUMNS} columns): one column holds the keys, the others are members of the input, as text unless the type's schema asks for a number or a boolean. Blank lines are skipped. All rows are added or none: a bad one is named by its \`line\` in \`errors\`. At most ${MAX_UPLOAD_BYTES / 1024 ** 3} GiB, and ${MAX_ROW_BYTES / 1024 ** 2} MiB a row; a draft takes one upload at a time. With an \`Idempotency-Key\` a repeat of the same bytes answers the same and adds nothing.`,
        params: OperationParams,
        querystring: UploadQuery,
        headers: ConditionHeaders.extend({ 'idempotency-key': z.string().optional() }),
        response: {
          200: UploadedResource,
          ...refusals({
            404: 'No such operation.',
            409: 'It is not a draft any more, or another upload is under way.',
            413: 'The body is too large.',
            415: 'The body is neither NDJSON nor CSV.',
            422: 'A row was refused; nothing was added.',
          }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const upload = toUploadRequest(request, request.query.key ?? DEFAULT_KEY_COLUMN)
      const leave = places.take(request.principal.tenantId)
      try {
        const { added, total, replayed } = await services.uploadItems(request.principal, id, upload)
        if (replayed) reply.header('idempotent-replayed', 'true')
        return { added, total }
      } finally {
        leave()
        discardRest(request.raw)
      }
    },
  )
}

const toUploadRequest = (request: FastifyRequest, keyColumn: string): UploadRequest => {
  const format = formatOf(request.headers['content-type'])
  if (Number(request.headers['content-length'] ?? 0) > MAX_UPLOAD_BYTES) throw tooLarge(MAX_UPLOAD_BYTES)
  const { bytes, hash } = openUploadBody(request.raw, format === 'csv' ? `csv ${keyColumn}` : 'ndjson')
  return {
    rows: format === 'csv' ? readCsvRows(bytes, keyColumn) : readNdjsonRows(bytes),
    cells: format === 'csv' ? 'text' : 'json',
    hash,
    idempotencyKey: idempotencyKeyOf(request.headers['idempotency-key']),
    ifMatchVersion: matchVersionOf(request.headers['if-match']),
  }
}

const addStart = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/operations/:id/start',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: OPERATION_TAGS,
        operationId: 'startOperation',
        summary: 'Start a draft',
        description:
          'Closes the draft: its items are fixed, and it runs, or waits for an approval if its type says so.',
        params: OperationParams,
        headers: ConditionHeaders,
        body: ReasonBody,
        response: {
          202: OperationResource,
          ...refusals({
            404: 'No such operation.',
            409: 'It is not a draft, or an upload is under way.',
            412: 'It changed since the version in If-Match.',
            422: 'It has no items.',
          }),
        },
      },
    },
    async (request, reply) => {
      const operation = await services.startDraft(request.principal, operationIdOf(request.params), {
        reason: request.body.reason ?? null,
        ifMatchVersion: matchVersionOf(request.headers['if-match']),
      })
      reply.code(202)
      return answerOperation(request, reply, operation)
    },
  )
}
