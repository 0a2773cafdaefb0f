/** What the traps of several faults have in common. */
import type { ProbeSubject } from '../../../src/probe.ts'
import { until } from '../../support/processes.ts'
import type { Hit } from './probes.ts'
import type { Stack } from './stack.ts'

/** Whether a process stands at its point with the operation of this key, whose client may not know it yet. */
export const ofKey =
  ({ sql }: Pick<Stack, 'sql'>, key: string) =>
  async ({ idempotencyKey, operationId }: ProbeSubject): Promise<boolean> => {
    if (idempotencyKey !== undefined) return idempotencyKey === key
    const rows = await sql`select from operations where idempotency_key = ${key} and id = ${operationId ?? null}::uuid`
    return rows.length > 0
  }

/** Resolves when the provider has done this effect and its answer has been read by the process that stands at the point. */
export const onceDone =
  ({ effects }: Pick<Stack, 'effects'>, effectKey: string) =>
  async ({ member }: Hit): Promise<void> => {
    await until(`the provider has done ${effectKey}`, async () => (await effects.log())[effectKey]?.applied === 1)
    await member.ask({}) // the answer came first, so it was read first
  }

/** A promise, and who resolves it. */
export const makeGate = (): { opened: Promise<void>; open: () => void } => {
  let open: () => void = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

export interface Standing {
  /** Of the first item. */
  state: 'unprocessed' | 'intent' | 'applied' | 'skipped' | 'failed' | 'uncertain'
  /** How often its shard was claimed. */
  epoch: number
}

/** What the database says of the first item of an operation; null: there is no such operation. */
export const readStanding = async ({ sql }: Pick<Stack, 'sql'>, key: string): Promise<Standing | null> => {
  const [row] = await sql<Standing[]>`
    select s.lease_epoch::int as epoch, case when e.state = 'intent' then 'intent' else coalesce((
      select l.state from ledger_entries l
      where l.tenant_id = o.tenant_id and l.operation_id = o.id and l.ord = 0 and l.state is not null
      order by l.seq desc limit 1), 'unprocessed') end as state
    from operations o
      join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id and s.shard = 0
      join operation_items i on i.tenant_id = o.tenant_id and i.operation_id = o.id and i.ord = 0
      left join effects e on e.tenant_id = o.tenant_id and e.effect_key = i.effect_key
    where o.idempotency_key = ${key}`
  return row ?? null
}

/**
 * Whether a process stands at its point with this operation, and its item is in this state: on a busy machine a run may come
 * by without having had the time to send.
 */
export const ofItem =
  (stack: Pick<Stack, 'sql'>, key: string, state: Standing['state']) =>
  async (subject: ProbeSubject): Promise<boolean> =>
    (await ofKey(stack, key)(subject)) && (await readStanding(stack, key))?.state === state

/** What a trap waits for never comes if nobody passes its point: then this throws. */
export const within = async <T>(ms: number, what: string, promise: Promise<T>): Promise<T> => {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms / 1_000} s: ${what}`)), ms)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
