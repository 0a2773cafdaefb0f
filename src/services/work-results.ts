/** What a worker elsewhere says became of items, as evidence of it. */
import { hiderOf, hideTexts, maskedValues } from '../domain/hidden-values.ts'
import { addDuration } from '../domain/latency.ts'
import type { SendOutcome } from '../domain/operation-type.ts'
import type { Report } from '../storage/run/evidence.ts'
import { readSentEffects, type SentEffect } from '../storage/run/remote.ts'
import { readItems } from '../storage/run/window.ts'
import { addTypeMinutes, emptyDelta } from '../storage/type-minutes.ts'
import { convergeEvidence } from './converge.ts'
import { sentReport, unsentReport, workerEvidence } from './outcome-reports.ts'
import type { RemoteContext, RemoteHold } from './remote-hold.ts'
import type { WorkResult } from './requests.ts'

/** Writes outcomes, also those of a lease that is lost: late evidence overwrites nothing (storage/run/converge.ts). */
export const writeResults = async (
  context: RemoteContext,
  hold: RemoteHold,
  results: readonly WorkResult[],
): Promise<{ recorded: number; unknown: string[] }> => {
  if (results.length === 0) return { recorded: 0, unknown: [] }
  const keys = results.map(({ effectKey }) => effectKey)
  const sent = await context.database.query((connection) => readSentEffects(connection, hold.lease, keys))
  const masked = await readMasked(context, hold, [...sent.values()])
  const said = results.flatMap((result) => {
    const effect = sent.get(result.effectKey)
    if (!effect) return []
    return [{ result, report: reportOf(hold, effect, withoutMasked(result, masked.get(effect.ord))) }]
  })
  let recorded = 0
  for (const group of oneOfEachItem(said)) {
    const evidence = workerEvidence(
      hold,
      group.map(({ report }) => report),
    )
    const { moved } = await convergeEvidence(context, hold.lease, evidence)
    const counted = group.filter(({ report }) => moved.has(report.ord))
    recorded += counted.length
    await measure(context, hold, counted)
  }
  return { recorded, unknown: keys.filter((key) => !sent.has(key)) }
}

/** By item, what its worker was given and must not say: it was not masked for it. */
const readMasked = async (
  { database }: RemoteContext,
  { lease, type }: RemoteHold,
  effects: readonly SentEffect[],
): Promise<Map<number, string[]>> => {
  if (type.mask.length === 0) return new Map()
  const ords = effects.map(({ ord }) => ord)
  const items = await database.query((connection) => readItems(connection, lease, ords))
  return new Map(items.map(({ ord, input }) => [ord, maskedValues(input, type.mask)]))
}

const withoutMasked = (result: WorkResult, values: readonly string[] = []): WorkResult => ({
  ...result,
  outcome: hideTexts(result.outcome, hiderOf(values)),
})

type Said = { result: WorkResult; report: Report }

/** Two steps of one item cannot be told of in one statement: in the order of the list, each item once a group. */
const oneOfEachItem = (said: readonly Said[]): Said[][] => {
  const groups: Map<number, Said>[] = []
  for (const one of said) {
    const group = groups.find((known) => !known.has(one.report.ord))
    if (group) group.set(one.report.ord, one)
    else groups.push(new Map([[one.report.ord, one]]))
  }
  return groups.map((group) => [...group.values()])
}

/**
 * Whether a send was a repeat under its provider's promise is known while it is in flight. Later it is taken for one where it
 * may have been: then anything but `applied` says nothing about the first send.
 */
const reportOf = ({ type }: RemoteHold, effect: SentEffect, { send, outcome }: WorkResult): Report => {
  const resend = effect.inFlight ? effect.resend : type.providerIdempotentMs > 0 && send > 1
  const intent = {
    ord: effect.ord,
    effectKey: effect.effectKey,
    send,
    key: effect.key,
    attempt: effect.attempt,
    resend,
  }
  return outcome.state === 'unsent' ? unsentReport(intent) : sentReport(type, intent, outcomeOf(outcome))
}

const outcomeOf = (outcome: Exclude<WorkResult['outcome'], { state: 'unsent' }>): SendOutcome => {
  switch (outcome.state) {
    case 'applied':
      return { state: 'applied', ...(outcome.effectRef !== null && { effectRef: outcome.effectRef }) }
    case 'skipped':
      return {
        state: 'skipped',
        reasonCode: outcome.reasonCode ?? 'ALREADY_AT_TARGET',
        ...(outcome.effectRef !== null && { effectRef: outcome.effectRef }),
      }
    case 'failed':
      return {
        state: 'failed',
        failureClass: outcome.failureClass,
        ...(outcome.reasonCode !== null && { reasonCode: outcome.reasonCode }),
        ...(outcome.message !== null && { message: outcome.message }),
      }
    case 'uncertain':
      return {
        state: 'uncertain',
        reasonCode: outcome.reasonCode ?? 'OUTCOME_UNKNOWN',
        ...(outcome.message !== null && { message: outcome.message }),
      }
  }
}

/** Statistics, not facts: what cannot be written is not counted. */
const measure = async (
  { database }: RemoteContext,
  { lease, type }: RemoteHold,
  counted: readonly Said[],
): Promise<void> => {
  const delta = emptyDelta(type.name)
  for (const { result, report } of counted) {
    if (result.outcome.state === 'unsent') continue
    delta.calls++
    if (result.downstreamError) delta.errors++
    if (result.durationMs !== null) delta.latency = addDuration(delta.latency, result.durationMs)
    if (report.item !== null) delta.items++
    if (report.failureClass === 'validation_rejected') delta.rejected++
  }
  if (delta.calls === 0) return
  await database.query((connection) => addTypeMinutes(connection, lease.workerId, [delta])).catch(() => {})
}
