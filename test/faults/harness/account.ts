/**
 * What a test of the suite is held to: its client's history, the judges of its types, and the invariants over both. One
 * account belongs to the operations of one test or round; what others do in the same stack is not looked at.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { effectLog, type Judge } from '../../invariants/effect-log.ts'
import { type WrongEvidence, wrongEvidence } from '../../invariants/effects-account.ts'
import { waitUntilSettled } from '../../invariants/end-account.ts'
import { type CallKind, createHistory, type CallFacts as Facts, operationIds } from '../../invariants/history.ts'
import { checkInvariants, type Expected } from '../../invariants/invariants.ts'
import { uuidOf } from '../../invariants/states-account.ts'
import { describeViolation, type Violation } from '../../invariants/violation.ts'
import { type CallFacts, type Client, openClient, type Recorder } from './client.ts'
import { type Stack, settleMs } from './stack.ts'

/** Violations that are told; one fault shows in many of them. */
const TOLD_MAX = 12
const WATCH_MS = 400

export interface Account {
  client: Client
  /** Of the operations that were named to its client. */
  ids(): string[]
  /** Throws with what is broken now. */
  during(expected?: Expected): Promise<void>
  /** Checks again and again until it is stopped; then throws with what was ever broken. */
  watch(expected?: Expected): { stop(): Promise<void> }
  /** Waits until all is over, within the time of phase two, and throws with what is broken or still open. */
  end(expected?: Expected): Promise<void>
  /** What was done more than once because of what somebody had said of a send. */
  wrongEvidence(): Promise<WrongEvidence[]>
  close(): Promise<void>
}

const kindOf = ({ kind }: CallFacts): CallKind => (kind === 'other' ? 'read' : kind)

const factsOf = ({ kind, operationId, idempotencyKey, body }: CallFacts): Facts => {
  const items = (body as { items?: unknown[] } | undefined)?.items
  return {
    operationId,
    key: idempotencyKey,
    ...(kind === 'submit' ? { body: JSON.stringify(body) } : {}),
    ...(kind === 'submit' && items !== undefined ? { items: items.length } : {}),
  }
}

/** Rows that nothing keeps from being there twice; the effect key stands with the item. */
const rowsJudge = (stack: Stack): Judge => ({
  types: ADDING,
  async read() {
    const rows = await stack.sql<{ key: string; n: number }[]>`
      select i.effect_key as key, count(*)::int as n from fault_rows r join operation_items i using (item_key)
      group by i.effect_key`
    return effectLog(rows.map(({ key, n }) => [key, n]))
  },
})

/** The types of harness/, by what their provider promises. */
const CALLING = ['fault-grant', 'fault-asked', 'fault-patient', 'fault-hasty', 'fault-refused', 'poison-call']
const DEDUPLICATED = ['fault-once']
/** They add rows to `fault_rows`. */
const ADDING = ['fault-row', 'poison-row', 'slow-row']

/** `calling`: more types that call the effect server. */
export const openAccount = (stack: Stack, calling: readonly string[] = []): Account => {
  const history = createHistory()
  const record: Recorder = (facts, call) =>
    history.record(kindOf(facts), factsOf(facts), async () => {
      const answer = await call()
      return { ...answer, replayed: answer.headers['idempotent-replayed'] === 'true' }
    })
  const client = openClient(() => stack.apis.map(({ url }) => url), record)
  const read = () => stack.effects.log()
  const judges: Judge[] = [
    { types: [...CALLING, ...calling], read },
    { types: DEDUPLICATED, read, idempotent: true },
    rowsJudge(stack),
  ]
  const check = (phase: 'during' | 'end', expected: Expected, deadline?: number): Promise<Violation[]> =>
    checkInvariants({ history, sql: stack.sql, judges, expected, phase, ...(deadline ? { deadline } : {}) })
  const judge = (found: readonly Violation[]): void => {
    expect([...new Set(found.map(describeViolation))].slice(0, TOLD_MAX)).toEqual([])
  }
  return {
    client,
    ids: () => operationIds(history),
    during: async (expected = {}) => judge(await check('during', expected)),
    watch(expected = {}) {
      const found: Violation[] = []
      let watching = true
      const watched = (async () => {
        while (watching) {
          found.push(...(await check('during', expected)))
          await sleep(WATCH_MS)
        }
      })()
      watched.catch(() => {})
      return {
        async stop() {
          watching = false
          await watched
          judge(found)
        },
      }
    },
    async end(expected = {}) {
      const withinMs = settleMs()
      const deadline = Date.now() + withinMs
      const { open } = expected
      await waitUntilSettled(stack.sql, operationIds(history), { withinMs, ...(open ? { open } : {}) })
      judge(await check('end', expected, deadline))
    },
    async wrongEvidence() {
      const ids = operationIds(history).map(uuidOf)
      return (await Promise.all(judges.map((each) => wrongEvidence(stack.sql, ids, each)))).flat()
    },
    close: () => client.close(),
  }
}
