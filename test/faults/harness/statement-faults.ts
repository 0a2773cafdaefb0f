/**
 * Meets processes at a statement: learns which ones each kind of process sends, and cuts the connection at one of them, or lets
 * it be carried out and loses the reply. `begin` and `commit` are the same text everywhere, so they are known by the statement
 * that was sent before them.
 */
import type { Verdict } from '../../support/tcp-proxy.ts'
import type { MemberKind } from './member.ts'

export interface Site {
  kind: MemberKind
  /** In lower case, on one line. */
  statement: string
}
export type Blow = Exclude<Verdict, 'pass'>

const FRAME = /^(begin|commit|rollback)\b/
const TEXT_MAX = 100

const keyOf = ({ kind, statement }: Site): string => `${kind}: ${statement}`
export const describeSite = (site: Site): string => keyOf(site).slice(0, TEXT_MAX)

export interface StatementFaults {
  /** For the proxies of a stack. */
  decide(statement: string, slot: { kind: MemberKind; number: number }): Verdict
  /** Those that were sent so often, in the order in which they were first sent. */
  seen(atLeast?: number): Site[]
  /** The next process of that kind that sends it is met; `struck` is called then. Answers with what takes it back. */
  arm(site: Site, blow: Blow, struck: () => void): () => void
}

export const openStatementFaults = (): StatementFaults => {
  const sites = new Map<string, Site & { times: number }>()
  const before = new Map<string, string>()
  const armed = new Map<string, { blow: Blow; struck: () => void }>()
  return {
    decide(text, { kind, number }) {
      const place = `${kind} ${number}`
      const one = text.replace(/\s+/g, ' ')
      const statement = FRAME.test(one) ? `${one} after ${before.get(place) ?? 'nothing'}` : one
      if (!FRAME.test(one)) before.set(place, one)
      const site = { kind, statement }
      sites.set(keyOf(site), { ...site, times: 1 + (sites.get(keyOf(site))?.times ?? 0) })
      const met = armed.get(keyOf(site))
      if (!met) return 'pass'
      armed.delete(keyOf(site))
      met.struck()
      return met.blow
    },
    seen: (atLeast = 1) => [...sites.values()].filter(({ times }) => times >= atLeast),
    arm(site, blow, struck) {
      armed.set(keyOf(site), { blow, struck })
      return () => void armed.delete(keyOf(site))
    },
  }
}
