/** Load over HTTP, in a process of its own: autocannon, whose connections each have requests of their own. */
import autocannon from 'autocannon'
import type { LoadResult, LoadSettings } from '../harness/load.ts'
import { servePart } from '../harness/serve-part.ts'

await servePart(async () => ({
  calls: { run: (settings: LoadSettings) => run(settings) },
}))

async function run({ url, connections, seconds, status, requests }: LoadSettings): Promise<LoadResult> {
  let opened = 0
  const startedAt = performance.now()
  const before = process.cpuUsage()
  const result = await autocannon({
    url,
    connections,
    duration: seconds,
    timeout: 10,
    setupClient: (client) => {
      const own = opened++ % connections
      client.setRequests(requests.filter((_, index) => index % connections === own % requests.length))
    },
  })
  const { user, system } = process.cpuUsage(before)
  const cpu = (user + system) / 1_000 / (performance.now() - startedAt)
  const statuses = (result as { statusCodeStats?: Record<string, { count: number }> }).statusCodeStats ?? {}
  const odd = Object.entries(statuses).filter(([code]) => Number(code) !== status)
  if (odd.length > 0 || result.errors > 0 || result.timeouts > 0) {
    throw new Error(`${result.errors} errors, ${result.timeouts} timeouts, and answers ${JSON.stringify(odd)}`)
  }
  return { rate: (statuses[status]?.count ?? 0) / result.duration, cpu }
}
