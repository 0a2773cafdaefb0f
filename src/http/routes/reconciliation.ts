import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import type { CaseFilters } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { dbTimeField, filterField, listFilterField, pageFields, pageOf, textField } from '../fields.ts'
import { MAX_REASON_BYTES, MAX_REFERENCE_BYTES } from '../limits.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { CASE_STATUSES, CaseResource, toCase } from '../resources/case.ts'

const TAGS = ['Reconciliation']
const CaseParams = z.object({ case_id: z.string().describe('The id of a case.') })

const caseNotFound = (id: string): AppError => new AppError('case-not-found', `There is no reconciliation case ${id}`)

const caseIdOf = (params: { case_id: string }): string => {
  const id = parseId('case', params.case_id)
  if (id === null) throw caseNotFound(params.case_id)
  return id
}

export const addReconciliationRoutes = (app: App, deps: RouteDeps): void => {
  addList(app, deps)
  addGet(app, deps)
  addLookup(app, deps)
  addResolve(app, deps)
}

const CaseQuery = z.strictObject({
  operation_id: filterField.optional(),
  type: filterField.optional(),
  status: listFilterField(CASE_STATUSES).optional(),
  item_key: filterField.optional(),
  ...pageFields,
})

const CasePosition = z.object({ openedAt: dbTimeField, id: z.uuid() })

const addList = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/reconciliation',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listCases',
        summary: 'Uncertain effects, oldest first',
        description: 'All statuses unless asked.',
        querystring: CaseQuery,
        response: {
          200: pageOf(CaseResource),
          ...refusals({ 400: 'An unknown filter, or a cursor of another list.' }),
        },
      },
    },
    async (request, reply) => {
      const { query } = request
      const filters: CaseFilters = {
        operationId: query.operation_id === undefined ? null : parseId('op', query.operation_id),
        type: query.type ?? null,
        status: query.status ?? [],
        itemKey: query.item_key ?? null,
      }
      const list = { name: 'reconciliation', filters, position: CasePosition }
      const page = pageRequestOf(query, list)
      // No operation has such an id, so it has no cases; without the filter all would be listed.
      if (query.operation_id !== undefined && filters.operationId === null) return { items: [] }
      return answerPage(request, reply, await services.listCases(request.principal, filters, page), list, toCase)
    },
  )
}

const addGet = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/reconciliation/:case_id',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getCase',
        summary: 'Read a case',
        params: CaseParams,
        response: { 200: CaseResource, ...refusals({ 404: 'No such case.' }) },
      },
    },
    async (request) => {
      const found = await services.getCase(request.principal, caseIdOf(request.params))
      if (found === null) throw caseNotFound(request.params.case_id)
      return toCase(found)
    },
  )
}

const LookupBody = z.strictObject({}).meta({ id: 'LookupCase' })

const addLookup = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/reconciliation/:case_id/lookup',
    {
      config: { access: 'reconcile', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: TAGS,
        operationId: 'lookupCase',
        summary: 'Ask the provider about a case now',
        params: CaseParams,
        body: LookupBody,
        response: {
          200: CaseResource,
          ...refusals({ 404: 'No such case.', 409: 'The type has no lookup, or the case is closed.' }),
        },
      },
    },
    async (request) => toCase(await services.lookupCase(request.principal, caseIdOf(request.params))),
  )
}

const ResolveBody = z
  .strictObject({
    resolution: z.enum(['applied', 'not_applied']),
    evidence_ref: textField(MAX_REFERENCE_BYTES).describe('Where the evidence can be found: a ticket, a provider id.'),
    effect_ref: textField(MAX_REFERENCE_BYTES).nullish(),
    note: textField(MAX_REASON_BYTES).nullish(),
    retry: z.boolean().optional().describe('After `not_applied`: send it again. Default false: the item is failed.'),
    send: z
      .int()
      .min(1)
      .optional()
      .describe(
        'Which send `not_applied` is about, as the case shows it. Default: the one that the case was opened for.',
      ),
  })
  .refine((body) => body.resolution === 'not_applied' || body.retry !== true, {
    message: 'is only possible for an effect that was not applied',
    path: ['retry'],
  })
  .meta({ id: 'ResolveCase' })

const addResolve = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/reconciliation/:case_id/resolve',
    {
      config: { access: 'reconcile', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'resolveCase',
        summary: 'Close a case with evidence',
        description: 'Of two resolvers one wins; the other gets 409 with the outcome.',
        params: CaseParams,
        body: ResolveBody,
        response: {
          200: CaseResource,
          ...refusals({
            400: 'No evidence.',
            404: 'No such case.',
            409: 'It is resolved, and the problem names the outcome; or its effect is being sent again, or was.',
          }),
        },
      },
    },
    async (request) => {
      const { body } = request
      const resolved = await services.resolveCase(request.principal, caseIdOf(request.params), {
        resolution: body.resolution,
        evidenceRef: body.evidence_ref,
        effectRef: body.effect_ref ?? null,
        note: body.note ?? null,
        retry: body.retry ?? false,
        send: body.send,
      })
      return toCase(resolved)
    },
  )
}
