import type { IncomingMessage, ServerResponse } from 'node:http'
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import type { ServerDeps } from './deps.ts'
import type { Waiters } from './waiters.ts'

/** Fastify with zod-typed routes. */
export type App = FastifyInstance<RawServerDefault, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>

/** What routes work with. */
export interface RouteDeps extends ServerDeps {
  waiters: Waiters
}

export const JSON_TYPE = 'application/json'

export const ProblemResource = z
  .looseObject({
    type: z.string().describe('The page that explains the problem.'),
    code: z.string().describe('Stable; further codes may be added.'),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    instance: z.string(),
    request_id: z.string(),
    errors: z
      .array(
        z.object({
          detail: z.string(),
          pointer: z.string().optional().describe('A JSON pointer into the body, or the name of a parameter.'),
          line: z.int().optional(),
        }),
      )
      .optional(),
  })
  .meta({ id: 'Problem' })

const problemContent = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: ProblemResource } },
})

/** Documents the refusals of a route; every route may besides answer with 4xx and 5xx problems of the edge. */
export const refusals = <const Statuses extends Readonly<Record<number, string>>>(statuses: Statuses) => ({
  ...Object.fromEntries(Object.entries(statuses).map(([status, description]) => [status, problemContent(description)])),
  '4XX': problemContent('The request was refused; `code` says why.'),
  '5XX': problemContent('The service could not do it now; `Retry-After` says when to try again.'),
})
