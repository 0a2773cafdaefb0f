/**
 * Named points between the commits and calls of the protocol, for fault tests. In production nobody listens: a point is one
 * comparison with null. The fault suite loads a listener of its own into a process (test/faults/harness), which may hold the
 * process at a point, kill it there, cut its connections or throw.
 *
 * A point stands where something has just become true and the next thing has not been begun, so that a crash there is a crash
 * between the two.
 */
export type ProbePoint =
  // api
  | 'submission-checked'
  | 'submission-committed'
  | 'start-committed'
  | 'cancel-committed'
  | 'resolution-committed'
  // a shard in a worker
  | 'shard-claimed'
  | 'orphans-explained'
  | 'run-started'
  | 'window-read'
  | 'intents-committed'
  | 'send-allowed'
  | 'send-begun'
  | 'send-answered'
  | 'outcome-committed'
  | 'batch-effects-taken'
  | 'batch-handled'
  | 'batch-committed'
  | 'run-ended'
  | 'shard-finished'
  | 'settle-facts-read'
  | 'settled'
  // maintenance
  | 'unsettled-read'
  | 'lookup-taken'
  | 'lookup-answered'
  | 'chain-marked'
  | 'rows-purged'

/** Where the process stands: enough to tell one operation and item from another. */
export interface ProbeSubject {
  operationId?: string
  itemKey?: string
  /** Of a submission: its client does not know the operation yet. */
  idempotencyKey?: string | null
}

export type Probe = (point: ProbePoint, subject: ProbeSubject) => Promise<void>

let listener: Probe | null = null

/** For fault tests only. */
export const installProbe = (probe: Probe): void => {
  listener = probe
}

/** Says that this process stands at a point. Undefined, unless a fault test listens. */
export const probe = (point: ProbePoint, subject: ProbeSubject): Promise<void> | undefined => listener?.(point, subject)
