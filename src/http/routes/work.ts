import { z } from 'zod'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { textField } from '../fields.ts'
import {
  MAX_CODE_VERSION_BYTES,
  MAX_HOST_BYTES,
  MAX_RESULTS,
  MAX_TYPE_NAME_BYTES,
  MAX_WAIT_SECONDS,
  MAX_WORKER_LEASES,
  MAX_WORKER_TYPES,
} from '../limits.ts'
import {
  ClaimedWorkResource,
  HeldLeaseResource,
  ReportedWorkResource,
  toClaimedWork,
  toHeldLease,
  toReportedWork,
} from '../resources/work.ts'
import { maxItemsField, resultsField, SendField, stopSeenField, tokenField, toWorkResult } from './work-fields.ts'

const TAGS = ['Workers']
const NO_LEASE = { 404: 'No such lease.', 422: 'Its type is gone, or is not run by workers elsewhere any more.' }

/** Work for programs in any language: docs/worker-api.md. */
export const addWorkRoutes = (app: App, deps: RouteDeps): void => {
  addClaims(app, deps)
  addResults(app, deps)
  addHeartbeat(app, deps)
  addGiveBack(app, deps)
}

const ClaimBody = z
  .strictObject({
    worker: tokenField.optional().describe('Of the first answer. Without it the call registers, and takes nothing.'),
    host: textField(MAX_HOST_BYTES),
    pid: z
      .int()
      .min(0)
      .max(2 ** 31 - 1),
    code_version: textField(MAX_CODE_VERSION_BYTES).describe('Of the worker; shown with it.'),
    types: z
      .array(z.strictObject({ name: textField(MAX_TYPE_NAME_BYTES), version: z.int().min(1).max(1_000_000) }))
      .min(1)
      .max(MAX_WORKER_TYPES)
      .refine((types) => new Set(types.map((type) => type.name)).size === types.length, {
        message: 'must name each type once',
      }),
    wait_seconds: z.number().min(0).max(MAX_WAIT_SECONDS).optional().describe('How long to wait for work. Default 0.'),
    max_items: maxItemsField,
    lost_answer: z
      .boolean()
      .optional()
      .describe('An earlier answer was not read, and nothing of leases that `leases` does not name was begun.'),
    leases: z.array(tokenField).max(MAX_WORKER_LEASES).optional().describe('What the worker holds; for `lost_answer`.'),
  })
  .refine((body) => body.max_items !== 0, { message: 'must be at least 1', path: ['max_items'] })
  .meta({ id: 'ClaimWork' })

const addClaims = (app: App, { services, waiters }: RouteDeps): void => {
  app.post(
    '/worker/claims',
    {
      config: { access: 'work', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'claimWork',
        summary: 'Take a lease with its first items',
        body: ClaimBody,
        response: {
          200: ClaimedWorkResource,
          ...refusals({
            404: 'No such worker, or lease.',
            422: 'A type that there is not, or that is not remote.',
            503: 'Too many clients wait.',
          }),
        },
      },
    },
    async (request) => {
      const { body } = request
      const place = waiters.enter('poll')
      const onClose = () => place.abort()
      request.raw.socket.once('close', onClose)
      try {
        const claimed = await services.claimWork(request.principal, {
          worker: body.worker ?? null,
          host: body.host,
          pid: body.pid,
          codeVersion: body.code_version,
          types: body.types,
          maxItems: body.max_items ?? null,
          lostAnswer: body.lost_answer ?? false,
          leases: body.leases ?? [],
          seconds: body.wait_seconds ?? 0,
          signal: place.signal,
        })
        return toClaimedWork(claimed)
      } finally {
        request.raw.socket.off('close', onClose)
        waiters.leave(place)
      }
    },
  )
}

const ResultsBody = z
  .strictObject({
    lease: tokenField,
    results: resultsField,
    max_items: maxItemsField,
    stop_seen: stopSeenField,
    lost_answer: z
      .boolean()
      .optional()
      .describe('An earlier answer was not read, and nothing was begun but what `results` and `in_hand` name.'),
    in_hand: z.array(SendField).max(MAX_RESULTS).optional(),
  })
  .meta({ id: 'ReportWork' })

const addResults = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/worker/results',
    {
      config: { access: 'work', produces: [JSON_TYPE], refusal: 'last' },
      schema: {
        tags: TAGS,
        operationId: 'reportWork',
        summary: 'Say what became of items, and take the next ones',
        description: 'Results are kept also under a lease that is lost. A call may be repeated: each send counts once.',
        body: ResultsBody,
        response: { 200: ReportedWorkResource, ...refusals(NO_LEASE) },
      },
    },
    async (request) => {
      const { body } = request
      const reported = await services.reportWork(request.principal, {
        lease: body.lease,
        results: body.results.map(toWorkResult),
        maxItems: body.max_items ?? null,
        stopSeen: body.stop_seen ?? null,
        lostAnswer: body.lost_answer ?? false,
        inHand: (body.in_hand ?? []).map((sent) => ({ effectKey: sent.effect_key, send: sent.send })),
      })
      return toReportedWork(reported)
    },
  )
}

const HeartbeatBody = z
  .strictObject({
    worker: tokenField,
    state: z.enum(['active', 'draining', 'gone']).optional(),
    leases: z
      .array(z.strictObject({ lease: tokenField, stop_seen: stopSeenField }))
      .max(MAX_WORKER_LEASES)
      .refine((leases) => new Set(leases.map(({ lease }) => lease)).size === leases.length, {
        message: 'must name each lease once',
      }),
  })
  .meta({ id: 'BeatWork' })

const addHeartbeat = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/worker/heartbeat',
    {
      config: { access: 'work', produces: [JSON_TYPE], refusal: 'last' },
      schema: {
        tags: TAGS,
        operationId: 'beatWork',
        summary: 'Renew leases, and hear of stops',
        body: HeartbeatBody,
        response: {
          200: z.object({ leases: z.array(HeldLeaseResource) }),
          ...refusals({ ...NO_LEASE, 404: 'No such worker, or lease.' }),
        },
      },
    },
    async (request) => {
      const { body } = request
      const leases = await services.beatWork(request.principal, {
        worker: body.worker,
        state: body.state ?? null,
        leases: body.leases.map((held) => ({ lease: held.lease, stopSeen: held.stop_seen ?? null })),
      })
      return { leases: leases.map(toHeldLease) }
    },
  )
}

const GiveBackBody = z
  .strictObject({
    lease: tokenField,
    results: resultsField.optional(),
    rest: z
      .enum(['uncertain', 'unsent'])
      .optional()
      .describe('What became of items that no result names. `unsent`: none of them was begun. Default `uncertain`.'),
  })
  .meta({ id: 'GiveBackWork' })

const addGiveBack = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/worker/give-back',
    {
      config: { access: 'work', produces: [JSON_TYPE], refusal: 'last' },
      schema: {
        tags: TAGS,
        operationId: 'giveBackWork',
        summary: 'End a lease in order',
        body: GiveBackBody,
        response: { 200: ReportedWorkResource, ...refusals(NO_LEASE) },
      },
    },
    async (request) => {
      const { body } = request
      const given = await services.giveBackWork(request.principal, {
        lease: body.lease,
        results: (body.results ?? []).map(toWorkResult),
        rest: body.rest ?? 'uncertain',
      })
      return toReportedWork(given)
    },
  )
}
