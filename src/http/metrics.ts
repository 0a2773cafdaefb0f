import type { FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Principal } from '../services/principal.ts'
import type { Gauge as MeasuredGauge } from '../services/views.ts'
import type { Services } from './deps.ts'
import { METRICS_CACHE_ENTRIES, METRICS_CACHE_MS } from './limits.ts'

const PREFIX = 'opledger_'
const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60]

/** What one kind of caller sees of the database: all callers with the same key see the same. */
interface Measured {
  gauges: MeasuredGauge[] | null
  measuring: Promise<void> | null
  atMs: number
}

/**
 * Counts of this process, and gauges of the database that are read at most once per `METRICS_CACHE_MS`. The counts are those
 * of all tenants together, so they are for callers with `metrics:service` only.
 */
export class Metrics {
  readonly #registry = new Registry()
  readonly #services: Pick<Services, 'measure'>
  readonly #measured = new Map<string, Measured>()
  readonly #durations: Histogram<'method' | 'route' | 'status'>
  readonly #failures: Counter

  constructor(services: Pick<Services, 'measure'>) {
    this.#services = services
    collectDefaultMetrics({ register: this.#registry, prefix: PREFIX })
    this.#durations = new Histogram({
      name: `${PREFIX}http_request_duration_seconds`,
      help: 'Time from request to answer; long polls are counted with their wait.',
      labelNames: ['method', 'route', 'status'],
      buckets: DURATION_BUCKETS_SECONDS,
      registers: [this.#registry],
    })
    this.#failures = new Counter({
      name: `${PREFIX}measure_failures_total`,
      help: 'Scrapes for which the database could not be asked; gauges then keep their last values.',
      registers: [this.#registry],
    })
  }

  get contentType(): string {
    return this.#registry.contentType
  }

  /** Routes are named by their pattern, so that ids never become label values. */
  watch(app: FastifyInstance): void {
    app.addHook('onResponse', (request, reply, done) => {
      const route = request.routeOptions.url ?? 'none'
      this.#durations.observe({ method: request.method, route, status: reply.statusCode }, reply.elapsedTime / 1000)
      done()
    })
  }

  async collect(principal: Principal): Promise<string> {
    const seesService = principal.scopes.includes('metrics:service')
    const seesLedger = principal.scopes.includes('ledger:read')
    const whose = seesService ? 'service' : `tenant ${principal.tenantId}`
    const gauges = await this.#measure(`${whose}${seesLedger ? ' exact' : ''}`, principal)
    const process = seesService ? await this.#registry.metrics() : ''
    return `${process}${await render(gauges)}`
  }

  async #measure(key: string, principal: Principal): Promise<MeasuredGauge[]> {
    const entry = this.#entry(key)
    if (performance.now() - entry.atMs > METRICS_CACHE_MS) {
      entry.measuring ??= this.#services
        .measure(principal)
        .then(
          (gauges) => {
            entry.gauges = gauges
          },
          // A scrape must show the process even while its database is away; the counter says so.
          () => this.#failures.inc(),
        )
        .finally(() => {
          entry.measuring = null
          entry.atMs = performance.now()
        })
      await entry.measuring
    }
    return entry.gauges ?? []
  }

  #entry(key: string): Measured {
    const kept = this.#measured.get(key)
    if (kept !== undefined) return kept
    if (this.#measured.size >= METRICS_CACHE_ENTRIES) this.#measured.clear()
    const entry: Measured = { gauges: null, measuring: null, atMs: Number.NEGATIVE_INFINITY }
    this.#measured.set(key, entry)
    return entry
  }
}

const render = async (gauges: readonly MeasuredGauge[]): Promise<string> => {
  const registry = new Registry()
  for (const { name, help, labelNames, values } of gauges) {
    const gauge = new Gauge({ name: `${PREFIX}${name}`, help, labelNames, registers: [registry] })
    for (const { labels, value } of values) gauge.set(labels, value)
  }
  return registry.metrics()
}
