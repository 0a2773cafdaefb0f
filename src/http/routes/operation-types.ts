import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { OperationTypeResource, toOperationType } from '../resources/operation-type.ts'
import { ReasonBody } from './operations.ts'

const TAGS = ['Operation types']
const TypeParams = z.object({ name: z.string() })

export const addOperationTypeRoutes = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operation-types',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listOperationTypes',
        summary: 'What can be run',
        querystring: z.strictObject({}),
        response: { 200: z.object({ items: z.array(OperationTypeResource) }), ...refusals({}) },
      },
    },
    async (request) => ({ items: (await services.listOperationTypes(request.principal)).map(toOperationType) }),
  )
  app.get(
    '/operation-types/:name',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getOperationType',
        summary: 'A type with its guarantee and limits',
        params: TypeParams,
        response: { 200: OperationTypeResource, ...refusals({ 404: 'No such type.' }) },
      },
    },
    async (request) => {
      const { name } = request.params
      const type = await services.getOperationType(request.principal, name)
      if (type === null) throw new AppError('operation-type-not-found', `There is no operation type ${name}`)
      return toOperationType(type)
    },
  )
  for (const verb of ['pause', 'resume'] as const)
    app.post(
      `/operation-types/:name/${verb}`,
      {
        config: {
          access: 'types:admin',
          produces: [JSON_TYPE],
          bodyOptional: true,
          refusal: verb === 'pause' ? 'last' : 'first',
        },
        schema: {
          tags: TAGS,
          operationId: `${verb}OperationType`,
          summary: verb === 'pause' ? 'Stop all work of a type (kill switch)' : 'Let work of a type go on',
          params: TypeParams,
          body: ReasonBody,
          response: { 200: OperationTypeResource, ...refusals({ 404: 'No such type.' }) },
        },
      },
      async (request) => {
        const change = verb === 'pause' ? services.pauseOperationType : services.resumeOperationType
        const reason = request.body.reason ?? null
        return toOperationType(await change(request.principal, request.params.name, { reason }))
      },
    )
}
