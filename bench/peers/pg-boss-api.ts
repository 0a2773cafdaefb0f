/** What one would write to accept work with pg-boss: a Fastify route that sends one job, and answers when it is stored. */
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'
import { PgBoss } from 'pg-boss'
import { servePart } from '../harness/serve-part.ts'

const QUEUE = 'work'

await servePart<{ databaseUrl: string; connections: number }>(async ({ databaseUrl, connections }) => {
  const boss = new PgBoss({ connectionString: databaseUrl, max: connections })
  boss.on('error', (error) => {
    throw error
  })
  await boss.start()
  await boss.createQueue(QUEUE)
  const app = Fastify()
  app.post<{ Body: object }>('/operations', async ({ body }, reply) => {
    const id = await boss.send(QUEUE, body as object)
    reply.code(202).header('location', `/operations/${id}`)
    return { id, status: 'pending' }
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  return {
    ready: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`,
    close: async () => {
      app.server.closeAllConnections()
      await boss.stop({ graceful: false })
    },
  }
})
