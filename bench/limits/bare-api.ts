/**
 * The limit of B1 and B2: a Fastify route with one statement through postgres.js, and nothing else. It checks nothing, knows
 * no keys, no items and no shards, and gives no version.
 */
import { randomUUID } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'
import postgres from 'postgres'
import { servePart } from '../harness/serve-part.ts'

export interface BareApiSettings {
  databaseUrl: string
  /** As many as the api has. */
  connections: number
}

interface Body {
  type: string
  items: unknown[]
}

await servePart<BareApiSettings>(async ({ databaseUrl, connections }) => {
  const sql = postgres(databaseUrl, { max: connections, fetch_types: false, onnotice: () => {} })
  const app = Fastify()
  app.post<{ Body: Body }>('/operations', async ({ body }, reply) => {
    const id = randomUUID()
    const [row] = await sql`
      insert into bare_operations (id, type, status, items)
      values (${id}::uuid, ${body.type}, 'pending', ${JSON.stringify(body.items)}::text::jsonb)
      returning created_at::text as created_at`
    reply.code(202).header('location', `/operations/${id}`)
    return { id, type: body.type, status: 'pending', total: body.items.length, created_at: row?.created_at }
  })
  app.get<{ Params: { id: string } }>('/operations/:id', async ({ params }, reply) => {
    const [row] = await sql`
      select id, type, type_version, status, version, items_total, requested_by, reason, labels, priority, risk,
        created_at::text as created_at, started_at::text as started_at, completed_at::text as completed_at
      from operations where tenant_id = 1 and id = ${params.id}::uuid`
    if (row === undefined) return reply.code(404).send({})
    return row
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  return {
    ready: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`,
    close: async () => {
      app.server.closeAllConnections()
      await sql.end({ timeout: 1 })
    },
  }
})
