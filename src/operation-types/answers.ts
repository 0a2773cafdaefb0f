/** What an answer of a provider means, by the rules of its type. What no rule names is uncertain. */

import { sanitiseText } from '../domain/failure.ts'
import type { LookupRule, SendRule } from '../domain/http-definition.ts'
import { readPointer, textOf } from '../domain/json-pointer.ts'
import type { CallReport, LookupOutcome, SendOutcome } from '../domain/operation-type.ts'
import type { Exchange } from './outbound.ts'

export const MESSAGE_LENGTH_MAX = 500
export const REASON_CODE_LENGTH_MAX = 100
export const EFFECT_REF_LENGTH_MAX = 500

const isDownstreamError = (status: number): boolean => status >= 500 || status === 429

export const classifySend = (rules: readonly SendRule[], exchange: Exchange): CallReport => {
  if (exchange.kind === 'withheld') return { outcome: { state: 'unsent' }, downstreamError: false }
  if (exchange.kind === 'unsent') {
    const failureClass = exchange.isFault ? 'bug_suspected' : 'transient'
    return {
      outcome: { state: 'failed', failureClass, reasonCode: exchange.reasonCode, message: exchange.message },
      downstreamError: !exchange.isFault && exchange.reasonCode !== 'SHUTTING_DOWN',
    }
  }
  if (exchange.kind === 'broken') {
    const { reasonCode, message } = exchange
    return { outcome: { state: 'uncertain', reasonCode, message }, downstreamError: true }
  }
  return { outcome: classifyAnswer(rules, exchange), downstreamError: isDownstreamError(exchange.status) }
}

type Answer = Extract<Exchange, { kind: 'answered' }>

const classifyAnswer = (rules: readonly SendRule[], answer: Answer): SendOutcome => {
  const rule = rules.find(({ status }) => status.includes(answer.status))
  const message = answerMessage(answer)
  if (rule === undefined) {
    const reasonCode = answer.status >= 500 ? 'SERVER_ERROR' : 'UNCLASSIFIED_ANSWER'
    return { state: 'uncertain', reasonCode, message }
  }
  switch (rule.state) {
    case 'applied':
      return { state: 'applied', ...effectRef(rule.ref, answer.body) }
    case 'skipped':
      return { state: 'skipped', reasonCode: reasonCode(rule.reason_code, answer), ...effectRef(rule.ref, answer.body) }
    case 'failed':
      return { state: 'failed', failureClass: rule.class, reasonCode: reasonCode(rule.reason_code, answer), message }
  }
}

/** `after_ms` and who may believe an `absent` is the engine's matter; this only reads the answer. */
export const classifyLookup = (rules: readonly LookupRule[], exchange: Exchange): LookupOutcome => {
  if (exchange.kind !== 'answered') return { state: 'unknown', reasonCode: 'LOOKUP_DOWN' }
  const rule = rules.find(({ status }) => status.includes(exchange.status))
  if (rule === undefined) {
    return { state: 'unknown', reasonCode: isDownstreamError(exchange.status) ? 'LOOKUP_DOWN' : 'LOOKUP_UNCLASSIFIED' }
  }
  const evidence = `lookup:HTTP ${exchange.status}`
  if (rule.state === 'absent') return { state: 'absent', evidenceRef: evidence }
  const ref = effectRef(rule.ref, exchange.body)
  return {
    state: 'applied',
    ...ref,
    evidenceRef: ref.effectRef === undefined ? evidence : `${evidence} ${ref.effectRef}`,
  }
}

const answerMessage = ({ status, body }: Answer): string => {
  const text = body.trim()
  return sanitiseText(text === '' ? `HTTP ${status}` : `HTTP ${status}: ${text}`, MESSAGE_LENGTH_MAX)
}

const effectRef = (ref: string | undefined, body: string): { effectRef?: string } => {
  const found = ref === undefined ? undefined : usableRef(literalOrPointer(ref, body))
  return found === undefined ? {} : { effectRef: found }
}

/** A reference that was cut would name something else: none is better. */
export const usableRef = (found: string | undefined): string | undefined =>
  found === undefined || found === '' || found.length > EFFECT_REF_LENGTH_MAX
    ? undefined
    : sanitiseText(found, EFFECT_REF_LENGTH_MAX)

const reasonCode = (source: string | undefined, { status, body }: Answer): string => {
  const found = source === undefined ? undefined : literalOrPointer(source, body)
  return found === undefined || found === '' ? `HTTP_${status}` : sanitiseText(found, REASON_CODE_LENGTH_MAX)
}

const literalOrPointer = (source: string, body: string): string | undefined =>
  source.startsWith('/') ? textOf(readPointer(parse(body), source)) : source

const parse = (body: string): unknown => {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}
