/**
 * What becomes of a shard whose run ended in a fault of the database: a connection that was cut, a limit of the server, a lock
 * that did not come. Nobody has died, so nobody is to be taken for dead: as soon as the database answers, its holder lets the
 * lease end without the charge of a crash, and whoever takes it over goes on at full width (storage/run/end-lease.ts; why this
 * is safe stands in the header of lease.ts).
 *
 *   fault ─▶ gate closed, not renewed ─▶ end the lease, again and again ─▶ ended: due again after a moment
 *                                              ├─ it is somebody else's by now: nothing to do
 *                                              └─ no patience left, or the process leaves: it runs out, as after a crash
 *
 * An error of another kind is a bug, of ours or of a type: its lease runs out and is counted. Some of those look like faults (a
 * batch that never ends within the server's limits, a handler whose own service refuses connections): so a shard that ends in
 * faults again and again is counted, too, and its items run one by one.
 */
import type { Log } from '../log.ts'
import type { Database } from '../storage/database.ts'
import { abortsBatch } from '../storage/database-faults.ts'
import { endLease } from '../storage/run/end-lease.ts'
import type { HeldShard } from './held-shard.ts'

/** Runs of one shard that end in faults one after the other, in this process, without being counted. */
const UNCHARGED_MAX = 5
/** After the first fault a shard rests for so long, and twice as long after each that follows. */
const REST_MS_MIN = 500
const REST_MS_MAX = 8_000
const RETRY_MS = 250
/** As long as outcomes are kept: a lease that ran out meanwhile can still be ended if nobody has taken it over. */
const PATIENCE_MS = 120_000
/** So long the process that leaves still waits for all of them. */
const LEAVE_MS = 1_000
/** Shards whose faults are counted; of more the oldest are forgotten, and begin anew. */
const REMEMBERED_MAX = 1_000

export interface GiveBacks {
  /** Ends the lease of a run that ended in this error. Answers with the milliseconds until it is due; null: it runs out. */
  giveBack(held: HeldShard, error: unknown): Promise<number | null>
  /** A run ended well: the next fault of its shard is a first one. */
  ended(held: HeldShard): void
  /** The process leaves: what is not given back in a moment runs out. */
  leave(): Promise<void>
}

const keyOf = ({ lease }: HeldShard): string => `${lease.operationId}/${lease.shard}`

export const openGiveBacks = ({ control, log }: { control: Database; log: Log }): GiveBacks => {
  const faults = new Map<string, number>()
  const pending = new Set<Promise<unknown>>()
  let left = false

  const countFault = (held: HeldShard): number => {
    const key = keyOf(held)
    const count = (faults.get(key) ?? 0) + 1
    faults.delete(key)
    faults.set(key, count)
    const [oldest] = faults.keys()
    if (faults.size > REMEMBERED_MAX && oldest !== undefined) faults.delete(oldest)
    return count
  }

  const endPatiently = async (held: HeldShard, end: { dueInMs: number; claims: number }): Promise<number | null> => {
    const { lease, charge } = held
    const fields = { operation_id: lease.operationId, shard: lease.shard, epoch: lease.epoch }
    const until = performance.now() + PATIENCE_MS
    while (!left && performance.now() < until) {
      try {
        const ended = await control.query((connection) => endLease(connection, lease, { ...end, charge }))
        return ended ? end.dueInMs : null
      } catch (error) {
        log.debug({ ...fields, err: error }, 'a lease could not be ended yet')
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    }
    log.warn(fields, 'a lease could not be ended: it runs out, as after a crash')
    return null
  }

  return {
    async giveBack(held, error) {
      const { lease } = held
      const fields = { err: error, operation_id: lease.operationId, shard: lease.shard, epoch: lease.epoch }
      // nothing is sent or renewed under it any more
      held.finishing = true
      held.lost = true
      if (!abortsBatch(error)) {
        log.error({ ...fields, type: held.type.name }, 'a run ended in an error')
        return null
      }
      const count = countFault(held)
      log.warn({ ...fields, type: held.type.name, faults: count }, 'a run ended in a fault of the database')
      const given = endPatiently(held, {
        dueInMs: Math.min(REST_MS_MAX, REST_MS_MIN * 2 ** (count - 1)),
        claims: count > UNCHARGED_MAX ? lease.claims : lease.claimsBefore,
      })
      pending.add(given)
      return given.finally(() => pending.delete(given))
    },
    ended: (held) => void faults.delete(keyOf(held)),
    async leave() {
      if (pending.size > 0) {
        let timer: NodeJS.Timeout | undefined
        const over = new Promise((resolve) => {
          timer = setTimeout(resolve, LEAVE_MS)
        })
        await Promise.race([Promise.all(pending), over])
        clearTimeout(timer)
      }
      left = true
    },
  }
}
