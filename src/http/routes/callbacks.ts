import { z } from 'zod'
import { traceIdOf } from '../../domain/audit.ts'
import { type App, type RouteDeps, refusals } from '../app.ts'
import { MAX_CALLBACK_BYTES } from '../limits.ts'
import { CallbackResource, toCallback } from '../resources/callback.ts'

const CallbackParams = z.object({ type: z.string().describe('The name of an operation type.') })

/** PostgreSQL's integer. */
const TENANT_MAX = 2_147_483_647
const CallbackQuery = z.strictObject({
  tenant: z
    .string()
    .regex(/^[1-9]\d{0,9}$/, 'must be the id of a tenant')
    .transform(Number)
    .refine((id) => id <= TENANT_MAX, 'must be the id of a tenant')
    .meta({ type: 'integer', minimum: 1, description: 'Whose effect is meant, where several tenants share its key.' })
    .optional(),
})

const SignatureHeaders = z.looseObject({
  'webhook-id': z.string().optional().describe('The id of the event: 1 to 255 visible ASCII characters.'),
  'webhook-timestamp': z.string().optional().describe('Seconds since 1970, when this delivery was signed.'),
  'webhook-signature': z.string().optional().describe('`v1,` and a base64 HMAC-SHA256; several, with spaces between.'),
})

const NO_BODY = Buffer.alloc(0)

/**
 * Whoever may call is proven by the signature, so no key is asked for; and where keys are off, neither `Host` nor `Origin`
 * is looked at: a provider comes through a tunnel under a name of its own, and a web page knows no secret to sign with.
 */
export const addCallbackRoutes = async (app: App, deps: RouteDeps): Promise<void> => {
  // A scope of its own: the signature is over the bytes, so nothing may parse them before.
  await app.register(async (scope: App) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, async (_request: unknown, body: Buffer) => body)
    addReceive(scope, deps)
  })
}

const addReceive = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/callbacks/:type',
    {
      bodyLimit: MAX_CALLBACK_BYTES,
      // no negotiation: evidence is not turned away for what its sender would rather read
      config: { access: 'open', refusal: 'last' },
      schema: {
        tags: ['Reconciliation'],
        operationId: 'receiveCallback',
        summary: 'Take a signed event from a provider',
        description: `Signed as Standard Webhooks lays down, with a secret of the type; at most ${MAX_CALLBACK_BYTES / 1024} KiB. The event makes its effect applied or absent, in whatever order and however late it arrives, also after a cancel. What contradicts is noted and opens a case; it overwrites nothing. A repeat of an event is answered with its outcome.`,
        security: [],
        params: CallbackParams,
        querystring: CallbackQuery,
        headers: SignatureHeaders,
        response: {
          202: CallbackResource,
          ...refusals({
            400: 'It is signed, but is not JSON.',
            401: 'The signature is missing or wrong, or too old.',
            404: 'No such type, or one without callbacks.',
            409: 'The id belongs to an event with another body, or several tenants have the effect.',
            413: 'The body is too large.',
          }),
        },
      },
    },
    async (request, reply) => {
      const received = await services.receiveCallback({
        type: request.params.type,
        headers: request.headers,
        body: Buffer.isBuffer(request.body) ? request.body : NO_BODY,
        tenantId: request.query.tenant ?? null,
        origin: {
          auth: 'signature',
          scope: null,
          requestId: request.id,
          traceId: traceIdOf(request.traceparent),
        },
      })
      const answer = toCallback(received)
      if (received.judged) {
        const { outcome, operation_id, item_key } = answer
        request.log.info({ operation_id, item_key, effect_key: received.effectKey, outcome }, 'callback judged')
      }
      return reply.code(202).header('cache-control', 'no-store').send(answer)
    },
  )
}
