/**
 * The job that every peer does: a target is changed (or a provider called), and what became of it is written down for each
 * target, in one statement. This is what a user of a queue has to add to it to know afterwards what opledger's ledger knows.
 */
import postgres from 'postgres'
import { Pool } from 'undici'

export interface JobSettings {
  databaseUrl: string
  /** Null: the job is an UPDATE; else a call to this provider. */
  providerUrl: string | null
  /** Calls at a time. */
  concurrency: number
}

export interface Job {
  one(target: number): Promise<void>
  /** For peers that hand over several at once. */
  many(targets: readonly number[]): Promise<void>
  close(): Promise<void>
}

/** As many as a worker of opledger has in its default. */
const CONNECTIONS = 18

const literal = (values: readonly (string | number)[]): string => `{${values.join(',')}}`

export const openJob = ({ databaseUrl, providerUrl, concurrency }: JobSettings): Job => {
  const sql = postgres(databaseUrl, { max: CONNECTIONS, fetch_types: false, onnotice: () => {} })
  if (providerUrl === null) {
    return {
      async one(target) {
        await sql`
          with changed as (update targets set value = value + 1 where id = ${target} returning id)
          insert into outcomes (target, state) select id, 'applied' from changed`
      },
      async many(targets) {
        await sql`
          with changed as (update targets set value = value + 1 where id = any(${literal(targets)}::int[]) returning id)
          insert into outcomes (target, state) select id, 'applied' from changed`
      },
      close: () => sql.end({ timeout: 1 }),
    }
  }
  const pool = new Pool(providerUrl, { connections: concurrency, pipelining: 1 })
  const call = async (target: number): Promise<string> => {
    const { statusCode, body } = await pool.request({
      method: 'POST',
      path: '/effects',
      headers: { 'content-type': 'application/json', 'idempotency-key': `peer:${target}` },
      body: JSON.stringify({ target: `t${target}` }),
    })
    const { id } = JSON.parse(await body.text()) as { id?: string }
    if (statusCode !== 201 || id === undefined) throw new Error(`the provider answered ${statusCode}`)
    return id
  }
  return {
    async one(target) {
      const ref = await call(target)
      await sql`insert into outcomes (target, state, ref) values (${target}, 'applied', ${ref})`
    },
    async many(targets) {
      const refs = await Promise.all(targets.map(call))
      await sql`
        insert into outcomes (target, state, ref)
        select target, 'applied', ref from unnest(${literal(targets)}::int[], ${literal(refs)}::text[]) as u (target, ref)`
    },
    async close() {
      await pool.destroy()
      await sql.end({ timeout: 1 })
    },
  }
}

export interface Count {
  /** Resolves when as many have been done as are announced here; rejects with the first that failed. */
  expect(count: number): Promise<void>
  done(): void
  /** A queue would try again later, and what it reports would then be its waiting. */
  fail(error: Error): void
}

export const openCount = (): Count => {
  let left = 0
  let settle: { resolve(): void; reject(error: Error): void } | null = null
  return {
    expect: (count) =>
      new Promise((resolve, reject) => {
        left = count
        settle = { resolve, reject }
      }),
    done() {
      left -= 1
      if (left <= 0) settle?.resolve()
    },
    fail: (error) => settle?.reject(error),
  }
}

export interface PeerSettings extends JobSettings {
  redisPort: number | null
}
