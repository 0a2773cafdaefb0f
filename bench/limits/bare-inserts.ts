/**
 * The limit of B3: a loop that writes the rows which opledger writes for the same items (an effect and a ledger entry each) and
 * does the same UPDATE, in batches and on connections of the same number. It reads no items, takes no lease, asks for no
 * stop, moves no cursor and counts nothing. Each batch is one transaction whose statements leave in one round trip.
 */
import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { servePart } from '../harness/serve-part.ts'

export interface BareInsertsSettings {
  databaseUrl: string
  lanes: number
  batch: number
}

const literal = (values: readonly (string | number)[]): string => `{${values.join(',')}}`

await servePart<BareInsertsSettings>(async ({ databaseUrl, lanes, batch }) => {
  const clients = Array.from({ length: lanes }, () =>
    postgres(databaseUrl, { max: 1, fetch_types: false, onnotice: () => {} }),
  )
  const connections = await Promise.all(
    clients.map(async (sql) => {
      await sql`select 1` // a reservation of a client that is not connected yet waits for ever
      return sql.reserve()
    }),
  )

  const write = async (
    connection: postgres.ReservedSql,
    operation: string,
    from: number,
    to: number,
  ): Promise<void> => {
    const ords = Array.from({ length: to - from }, (_, index) => from + index)
    const keys = literal(ords.map((ord) => `bench-update:${operation}:t${ord}`))
    const items = literal(ords.map((ord) => `t${ord}`))
    const hashes = literal(
      ords.map((ord) => `hash-of-forty-three-characters-like-ours-${String(ord).padStart(6, '0')}`),
    )
    const numbers = literal(ords)
    await Promise.all([
      connection`begin`,
      connection`
        insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, item_state, send_by)
        select 1, effect_key, 'applied', 1, ${operation}::uuid, 0, ord, 1, 1, '', '', 'applied', now()
        from unnest(${numbers}::int[], ${keys}::text[]) as u (ord, effect_key)`,
      connection`update targets set value = value + 1 where id = any(${numbers}::int[])`,
      connection`
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash, source,
          worker_id, code_version)
        select 1, ${operation}::uuid, ord, item_key, 1, 'applied', effect_key, input_hash, 'worker', ${operation}::uuid, 'c1'
        from unnest(${numbers}::int[], ${items}::text[], ${keys}::text[], ${hashes}::text[])
          as u (ord, item_key, effect_key, input_hash)`,
      connection`commit`,
    ])
  }

  return {
    calls: {
      /** Items a second. */
      async run(count: number): Promise<number> {
        // a version 7 of now, so that its rows go where those of an operation go
        const operation = `${Date.now()
          .toString(16)
          .padStart(12, '0')
          .replace(/^(.{8})/, '$1-')}-7${randomUUID().slice(15)}`
        let next = 0
        const startedAt = performance.now()
        await Promise.all(
          connections.map(async (connection) => {
            while (next < count) {
              const from = next
              next = Math.min(count, from + batch)
              await write(connection, operation, from, next)
            }
          }),
        )
        return count / ((performance.now() - startedAt) / 1_000)
      },
    },
    close: () => Promise.all(clients.map((sql) => sql.end({ timeout: 0 }))),
  }
})
