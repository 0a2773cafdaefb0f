/**
 * What becomes of an item when the process that works on it is struck at a boundary of the protocol. The test of F2 asserts it,
 * and the table in README.md is rendered from it.
 */
import type { ProbePoint } from '../../src/probe.ts'

export const ACTIONS = ['kill', 'freeze', 'cut', 'throw'] as const
export type Action = (typeof ACTIONS)[number]

/** What phase two makes of it. */
export type Fate =
  /** The item is applied without anybody's help. */
  | 'alone'
  /** It is `uncertain`, and was never sent: a person says "not applied", and it is sent. */
  | 'doubt-unsent'
  /** It is `uncertain`, and was done: a person says "applied". */
  | 'doubt-sent'

/** How an operation is brought to the boundary. */
export type Approach =
  | 'plain'
  /** Its first worker has died with the item in flight. */
  | 'orphaned'
  /** Its last worker has died before it settled the operation. */
  | 'unsettled'

export interface Boundary {
  point: ProbePoint
  says: string
  type: 'fault-grant' | 'fault-asked' | 'fault-row'
  /** What the effect server does with the item. */
  mode?: 'apply_then_reset'
  approach: Approach
  /** What the database says of the item at the boundary; null: there is no operation yet; `open`: workers may have begun. */
  at: 'unprocessed' | 'intent' | 'uncertain' | 'applied' | 'open' | null
  /** What it says of it while the process is frozen, once its lease was taken over. */
  taken: 'unprocessed' | 'uncertain' | 'applied' | null
  fate: Record<Action, Fate>
}

const ALONE: Record<Action, Fate> = { kill: 'alone', freeze: 'alone', cut: 'alone', throw: 'alone' }

const external = (
  point: ProbePoint,
  says: string,
  more: Pick<Boundary, 'at' | 'taken'> & Partial<Boundary>,
): Boundary => ({
  point,
  says,
  type: 'fault-grant',
  approach: 'plain',
  fate: ALONE,
  ...more,
})

export const BOUNDARIES: readonly Boundary[] = [
  external('submission-checked', 'a POST is checked, not stored', { at: null, taken: null }),
  external('submission-committed', 'after the commit of the POST', { at: 'open', taken: null }),
  external('shard-claimed', 'after the claim of the shard', { at: 'unprocessed', taken: 'applied' }),
  external('orphans-explained', 'a takeover has called what was in flight uncertain', {
    approach: 'orphaned',
    at: 'uncertain',
    taken: 'uncertain',
    fate: { kill: 'doubt-sent', freeze: 'doubt-sent', cut: 'doubt-sent', throw: 'doubt-sent' },
  }),
  external('run-started', 'the operation is running', { at: 'unprocessed', taken: 'applied' }),
  external('window-read', 'before the claim of a window', { at: 'unprocessed', taken: 'applied' }),
  external('intents-committed', 'after the commit of the intent', {
    at: 'intent',
    taken: 'uncertain',
    fate: { ...ALONE, kill: 'doubt-unsent' },
  }),
  external('send-allowed', 'between the last check and the send', {
    at: 'intent',
    taken: 'uncertain',
    fate: { ...ALONE, kill: 'doubt-unsent', throw: 'doubt-unsent' },
  }),
  external('send-begun', 'the provider has seen the send', {
    at: 'intent',
    taken: 'uncertain',
    fate: { ...ALONE, kill: 'doubt-sent', throw: 'doubt-sent' },
  }),
  external('send-answered', 'after the answer, before the ledger', {
    at: 'intent',
    taken: 'uncertain',
    fate: { ...ALONE, kill: 'doubt-sent', throw: 'doubt-sent' },
  }),
  external('outcome-committed', 'after the commit of the ledger', { at: 'applied', taken: 'applied' }),
  external('batch-effects-taken', 'in a batch, before its handler', {
    type: 'fault-row',
    at: 'unprocessed',
    taken: 'applied',
  }),
  external('batch-handled', 'in a batch, before its commit', {
    type: 'fault-row',
    at: 'unprocessed',
    taken: 'applied',
  }),
  external('batch-committed', 'after the commit of batch and checkpoint', {
    type: 'fault-row',
    at: 'applied',
    taken: 'applied',
  }),
  external('run-ended', 'before the shard is finished', { at: 'applied', taken: 'applied' }),
  external('shard-finished', 'after the shard is finished, before the operation settles', {
    at: 'applied',
    taken: null,
  }),
  external('settle-facts-read', 'settle has read, and not written', { at: 'applied', taken: null }),
  external('settled', 'settle has written', { at: 'applied', taken: null }),
  external('unsettled-read', 'the sweep has read an operation that nobody settled', {
    approach: 'unsettled',
    at: 'applied',
    taken: null,
  }),
  external('lookup-taken', 'a lookup is taken in hand', {
    type: 'fault-asked',
    mode: 'apply_then_reset',
    at: 'uncertain',
    taken: null,
  }),
  external('lookup-answered', 'a lookup is answered, and not written', {
    type: 'fault-asked',
    mode: 'apply_then_reset',
    at: 'uncertain',
    taken: null,
  }),
]

const NAMES: Record<Fate, string> = {
  alone: 'applied',
  'doubt-unsent': 'uncertain; a person: not applied, retry',
  'doubt-sent': 'uncertain; a person: applied',
}

export const renderBoundaries = (): string =>
  [
    `| boundary | point | the item there | taken over | ${ACTIONS.join(' | ')} |`,
    `|---|---|---|---|${ACTIONS.map(() => '---|').join('')}`,
    ...BOUNDARIES.map(
      ({ says, point, at, taken, fate }) =>
        `| ${says} | \`${point}\` | ${at ?? '–'} | ${taken ?? '–'} | ${ACTIONS.map((action) => NAMES[fate[action]]).join(' | ')} |`,
    ),
  ].join('\n')
