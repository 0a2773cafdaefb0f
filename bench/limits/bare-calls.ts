/** The limit of B4: an undici pool that makes the same calls, keeps nothing and knows nothing afterwards. */
import { Pool } from 'undici'
import { servePart } from '../harness/serve-part.ts'

export interface BareCallsSettings {
  providerUrl: string
  concurrency: number
}

await servePart<BareCallsSettings>(async ({ providerUrl, concurrency }) => {
  const pool = new Pool(providerUrl, { connections: concurrency, pipelining: 1 })
  const call = async (n: number): Promise<void> => {
    const { statusCode, body } = await pool.request({
      method: 'POST',
      path: '/effects',
      headers: { 'content-type': 'application/json', 'idempotency-key': `bare:${n}` },
      body: JSON.stringify({ target: `t${n}` }),
    })
    const { id } = JSON.parse(await body.text()) as { id?: string }
    if (statusCode !== 201 || id === undefined) throw new Error(`the provider answered ${statusCode}`)
  }
  return {
    calls: {
      /** Calls a second. */
      async run(count: number): Promise<number> {
        let next = 0
        const startedAt = performance.now()
        await Promise.all(
          Array.from({ length: concurrency }, async () => {
            while (next < count) await call(next++)
          }),
        )
        return count / ((performance.now() - startedAt) / 1_000)
      },
    },
    close: () => pool.destroy(),
  }
})
