/**
 * Retention while everything else goes on: time passes in leaps of years, and janitors take all the while what is old. A leap
 * moves what has happened to an operation into the past, whatever its status: what is not over must be kept all the same.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { retention } from '../../../src/maintenance/retention.ts'
import { openDatabase } from '../../../src/storage/database.ts'
import { uuidOf } from '../../invariants/states-account.ts'
import { plantedType, plantedTypes } from '../../support/planted-operation.ts'
import type { Stack } from './stack.ts'

const LEAP_DAYS = 800
const LEAP_EVERY_MS = 50
const JANITORS = 2

/**
 * Nobody is waited for: who has a row in hand keeps its time. So does a shard that is leased: leaping without end it would be
 * locked more often than not, and its lease could not be renewed.
 */
export const leap = async ({ sql }: Pick<Stack, 'sql'>, ids: readonly string[]): Promise<void> => {
  const uuids = ids.map(uuidOf)
  await sql`
    with x as materialized (select tenant_id, id from operations where id = any(${uuids}::uuid[]) order by id
      for no key update skip locked)
    update operations o set created_at = created_at - ${LEAP_DAYS} * interval '1 day',
      started_at = started_at - ${LEAP_DAYS} * interval '1 day', completed_at = completed_at - ${LEAP_DAYS} * interval '1 day'
    from x where o.tenant_id = x.tenant_id and o.id = x.id`
  await sql`
    with x as materialized (
      select tenant_id, operation_id, shard from operation_shards
      where operation_id = any(${uuids}::uuid[]) and state <> 'leased'
      order by operation_id, shard for no key update skip locked)
    update operation_shards s set last_progress_at = last_progress_at - ${LEAP_DAYS} * interval '1 day'
    from x where s.tenant_id = x.tenant_id and s.operation_id = x.operation_id and s.shard = x.shard`
  await sql`
    update reconciliation_cases set closed_at = closed_at - ${LEAP_DAYS} * interval '1 day'
    where operation_id = any(${uuids}::uuid[]) and closed_at is not null`
  await sql`
    update dead_letters set closed_at = closed_at - ${LEAP_DAYS} * interval '1 day'
    where operation_id = any(${uuids}::uuid[]) and closed_at is not null`
}

export interface Janitors {
  /** Time stands still while a person acts: what has just been closed is kept for as long as a new one. */
  standStill<T>(act: () => Promise<T>): Promise<T>
  /** Throws what went wrong with any of them. */
  stop(): Promise<void>
}

/** `ids`: the operations for which time leaps, asked each time. */
export const openJanitors = (stack: Stack, types: readonly string[], ids: () => readonly string[]): Janitors => {
  const database = openDatabase({ url: stack.databaseUrl, size: JANITORS, name: 'janitors' })
  const failed: unknown[] = []
  const log = pino(
    { level: 'warn', base: null },
    { write: (line) => void failed.push(new Error(`a janitor says: ${line}`)) },
  )
  let working = true
  let acting = 0
  let leaping: Promise<unknown> = Promise.resolve()
  const janitor = async (): Promise<void> => {
    const service = retention({ database, types: plantedTypes(...types.map((name) => plantedType(name))) }, log)
    while (working) await service.runOnce()
  }
  const time = async (): Promise<void> => {
    while (working) {
      if (acting === 0) {
        leaping = leap(stack, ids())
        await leaping
      }
      await sleep(LEAP_EVERY_MS)
    }
  }
  const all = [time(), ...Array.from({ length: JANITORS }, janitor)].map((each) =>
    each.catch((error: unknown) => void failed.push(error)),
  )
  return {
    async standStill(act) {
      acting++
      try {
        await leaping
        return await act()
      } finally {
        acting--
      }
    },
    async stop() {
      working = false
      await Promise.all(all)
      await database.close()
      if (failed.length > 0) throw new AggregateError(failed, 'retention failed')
    },
  }
}
