/** What can happen, and how it is told. */
import { ITEMS } from './state.ts'

export const WORKERS = [0, 1]
export const ORDS = Array.from({ length: ITEMS }, (_, ord) => ord)

export type WorkerStep =
  | 'claims the shard'
  | 'takes the shard over'
  | 'looks for orphans'
  | 'claims a window'
  | 'hears of the shard'
  | 'renews its lease'
  | 'acknowledges the stop'
  | 'finishes'
  | 'ends in a fault'
  | 'crashes'
export type CallStep =
  | 'calls the orphan uncertain'
  | 'claims the retry'
  | 'explains the known key'
  | 'checks and sends'
  | 'checks, and is frozen before the socket'
  | 'thaws, and sends'
  | 'gives the call up'
  | 'writes the answer'
export type WorldStep =
  | 'the lease runs out'
  | 'a cancel is stored'
  | 'a pause is stored'
  | 'the pause is taken back'
  | 'the status is settled'
  | 'the evidence is brought home'
export type ItemStep =
  | 'the provider is asked'
  | 'a person looks'
  | 'a callback says applied'
  | 'a resend is queued'
  | 'nothing can arrive any more'
  | 'the doubt is closed'

export type Action =
  | { kind: 'worker'; step: WorkerStep; worker: number }
  | { kind: 'call'; step: CallStep; worker: number; ord: number }
  | { kind: 'world'; step: WorldStep }
  | { kind: 'item'; step: ItemStep; ord: number }
  | { kind: 'arrival'; step: 'applied' | 'refused'; ord: number; send: number }

const nameOf = (worker: number): string => 'AB'[worker] ?? '?'

export const describeAction = (action: Action): string => {
  switch (action.kind) {
    case 'worker':
      return `${nameOf(action.worker)} ${action.step}`
    case 'call':
      return `${nameOf(action.worker)} ${action.step} (item ${action.ord})`
    case 'world':
      return action.step
    case 'item':
      return `${action.step} (item ${action.ord})`
    case 'arrival':
      return `send ${action.send} of item ${action.ord} arrives and is ${action.step}`
  }
}
