import { z } from 'zod'
import { AUDIT_ACTIONS } from '../../domain/audit.ts'
import { AUDIT_SCOPE } from '../../services/principal.ts'
import type { AuditFilters } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { CSV, exported, NDJSON, sendStream, toCsvStream, toNdjsonStream } from '../exports.ts'
import { dbTimeField, filterField, listFilterField, pageFields, pageOf, timeField } from '../fields.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { AuditEntryResource, auditEntriesFor, auditRowsFor } from '../resources/audit.ts'

const AuditQuery = z.strictObject({
  actor: filterField.optional(),
  action: listFilterField(AUDIT_ACTIONS).optional(),
  subject: filterField.optional().describe('The id of what was acted on.'),
  created_after: timeField.optional(),
  created_before: timeField.optional(),
  ...pageFields,
})

const AuditPosition = z.object({ at: dbTimeField, seq: z.int().min(0) })

export const addAuditRoute = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/audit',
    {
      config: { access: AUDIT_SCOPE, produces: [JSON_TYPE, NDJSON, CSV] },
      schema: {
        tags: ['Audit'],
        operationId: 'listAudit',
        summary: 'Who did what, when and why, newest first',
        description:
          'One entry for each write, stored with it; nothing changes or removes one before its time is over. A repeat that an idempotency key has answered leaves none, and neither does what was refused. With `Accept: application/x-ndjson` or `text/csv` it streams all of them; `limit` and `cursor` then do not count.',
        querystring: AuditQuery,
        response: {
          200: exported(pageOf(AuditEntryResource), 'The entries.'),
          ...refusals({ 400: 'An unknown filter, or a cursor of another list.' }),
        },
      },
    },
    async (request, reply) => {
      const { query, principal } = request
      const filters: AuditFilters = {
        actor: query.actor ?? null,
        action: query.action ?? [],
        subject: query.subject ?? null,
        createdAfter: query.created_after ?? null,
        createdBefore: query.created_before ?? null,
      }
      const toEntry = auditEntriesFor(principal)
      if (request.answerType !== JSON_TYPE) {
        const pages = services.streamAudit(principal, filters)
        const columns = Object.keys(AuditEntryResource.shape)
        const stream =
          request.answerType === CSV
            ? toCsvStream(pages, columns, auditRowsFor(principal))
            : toNdjsonStream(pages, toEntry)
        return sendStream(request, reply, request.answerType, stream)
      }
      const list = { name: 'audit', filters, position: AuditPosition }
      const page = await services.listAudit(principal, filters, pageRequestOf(query, list))
      return answerPage(request, reply, page, list, toEntry)
    },
  )
}
