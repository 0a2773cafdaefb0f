import { z } from 'zod'
import type { HealthVerdict } from '../../domain/health.ts'
import { toRfc3339 } from '../../domain/times.ts'
import { figureInRanges, seesRanges } from '../../services/count-ranges.ts'
import type { Principal } from '../../services/principal.ts'
import type { HealthReportView, WorkerView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'

/** What the service says of itself: workers and the health report. */

export const WorkerResource = z
  .object({
    id: z.string(),
    host: z.string(),
    pid: z.int(),
    state: openEnum(['active', 'draining', 'gone'], 'gone: two heartbeats are missing.'),
    started_at: time,
    last_seen_at: time,
    code_version: z.string(),
    leases: z.int().describe('Those of the tenant.'),
  })
  .meta({ id: 'Worker' })

export const toWorker = (view: WorkerView): z.infer<typeof WorkerResource> => ({
  id: view.id,
  host: view.host,
  pid: view.pid,
  state: view.state,
  started_at: toRfc3339(view.startedAt),
  last_seen_at: toRfc3339(view.lastSeenAt),
  code_version: view.codeVersion,
  leases: view.leases,
})

const Figure = z
  .object({
    figure: z.string().describe('Further figures may be added.'),
    value: z.number().nullable().describe('Null: nothing to measure.'),
    threshold: z.string().describe('When it is an alarm.'),
    verdict: openEnum(['ok', 'alarm', 'no_data'], 'The value against the threshold.'),
    first_action: z.string().describe('What to do first when it is an alarm.'),
  })
  .meta({ id: 'HealthFigure' })

export const HealthReportResource = z
  .object({
    generated_at: time,
    types: z.array(
      z.object({
        type: z.string(),
        verdict: openEnum(['ok', 'alarm', 'no_data'], 'The worst of the figures.'),
        counts_in_ranges: z
          .boolean()
          .describe(
            'The type shows ranges of counts to callers without ledger:read: each is the lower end of its range.',
          ),
        figures: z.array(Figure).describe('What a small team reads in five minutes.'),
        cancel_contract: z.array(Figure).describe('What is promised about cancels and about what is not known.'),
      }),
    ),
  })
  .meta({ id: 'HealthReport' })

const toFigure = (
  { figure, value, threshold, verdict, firstAction }: HealthVerdict,
  inRanges: boolean,
): z.infer<typeof Figure> => ({
  figure,
  value: inRanges && value !== null ? figureInRanges(figure, value) : value,
  threshold,
  verdict,
  first_action: firstAction,
})

export const toHealthReport = (
  view: HealthReportView,
  caller: Pick<Principal, 'scopes'>,
): z.infer<typeof HealthReportResource> => ({
  generated_at: toRfc3339(view.generatedAt),
  types: view.types.map(({ type, verdict, countsSensitive, figures, cancelContract }) => {
    const inRanges = seesRanges(caller, { countsSensitive })
    return {
      type,
      verdict,
      counts_in_ranges: inRanges,
      figures: figures.map((figure) => toFigure(figure, inRanges)),
      cancel_contract: cancelContract.map((figure) => toFigure(figure, inRanges)),
    }
  }),
})

export const ReadinessResource = z
  .object({
    status: openEnum(['ready', 'draining', 'not_ready'], 'Whether to send requests here.'),
    checks: z.array(z.object({ name: z.string(), ok: z.boolean(), detail: z.string().nullable() })),
  })
  .meta({ id: 'Readiness' })
