import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { NO_SPAN, openTracing } from '../../src/tracing.ts'

const settings = { endpoint: 'http://127.0.0.1:9', headers: {}, serviceName: 'test' }
const SAMPLED = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
const UNSAMPLED = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-00`

describe('tracing', () => {
  test('that nobody takes is none, and loads nothing', async () => {
    expect(await openTracing(null, 'api')).toBeNull()
    const tried = spawnSync(
      process.execPath,
      [
        '--import',
        'tsx',
        '--input-type=module',
        '-e',
        `const { openTracing } = await import('./src/tracing.ts')
        const { createRequire } = await import('node:module')
        await openTracing(null, 'api')
        const loaded = Object.keys(createRequire(import.meta.url).cache).filter((file) => file.includes('@opentelemetry'))
        process.stdout.write(JSON.stringify(loaded))`,
      ],
      { encoding: 'utf8', cwd: new URL('../..', import.meta.url) },
    )
    expect([tried.stdout, tried.status], tried.stderr).toEqual(['[]', 0])
  })

  test('goes on below a caller that samples, and keeps still below one that does not', async () => {
    const tracing = await openTracing(settings, 'api')
    if (!tracing) throw new Error('there is no tracing')
    const child = tracing.start('POST', { kind: 'server', parent: SAMPLED })
    expect(child.traceparent).toMatch(new RegExp(`^00-${'a'.repeat(32)}-(?!${'b'.repeat(16)})[0-9a-f]{16}-01$`))
    expect(tracing.start('POST', { kind: 'server', parent: UNSAMPLED })).toBe(NO_SPAN)
    expect(tracing.start('run', { kind: 'consumer', link: UNSAMPLED })).toBe(NO_SPAN)
    const run = tracing.start('run', { kind: 'consumer', link: SAMPLED })
    expect(run.traceparent).toMatch(new RegExp(`^00-(?!${'a'.repeat(32)})[0-9a-f]{32}-[0-9a-f]{16}-01$`))
    run.set({ 'opledger.items': 1 })
    run.end('error')
    child.end('ok')
    // nobody listens at the endpoint: closing is patient, and not for long
    const startedMs = performance.now()
    await tracing.close()
    expect(performance.now() - startedMs).toBeLessThan(10_000)
  })
})
