import type { FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Services } from './deps.ts'
import { METRICS_CACHE_MS } from './limits.ts'

const PREFIX = 'opledger_'
const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60]

/** Counts of this process, and gauges of the database that are read at most once per `METRICS_CACHE_MS`. */
export class Metrics {
  readonly #registry = new Registry()
  readonly #services: Pick<Services, 'measure'>
  readonly #gauges = new Map<string, Gauge>()
  readonly #durations: Histogram<'method' | 'route' | 'status'>
  readonly #failures: Counter
  #measuring: Promise<void> | null = null
  #measuredAt = Number.NEGATIVE_INFINITY

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
    app.addHook('onResponse', async (request, reply) => {
      const route = request.routeOptions.url ?? 'none'
      this.#durations.observe({ method: request.method, route, status: reply.statusCode }, reply.elapsedTime / 1000)
    })
  }

  async collect(): Promise<string> {
    if (performance.now() - this.#measuredAt > METRICS_CACHE_MS) {
      this.#measuring ??= this.#measure().finally(() => {
        this.#measuring = null
      })
      await this.#measuring
    }
    return this.#registry.metrics()
  }

  async #measure(): Promise<void> {
    try {
      for (const { name, help, labelNames, values } of await this.#services.measure()) {
        const gauge = this.#gaugeOf(name, help, labelNames)
        gauge.reset()
        for (const { labels, value } of values) gauge.set(labels, value)
      }
    } catch {
      // A scrape must show the process even while its database is away; the counter says so.
      this.#failures.inc()
    }
    this.#measuredAt = performance.now()
  }

  #gaugeOf(name: string, help: string, labelNames: string[]): Gauge {
    const known = this.#gauges.get(name)
    if (known !== undefined) return known
    const gauge = new Gauge({ name: `${PREFIX}${name}`, help, labelNames, registers: [this.#registry] })
    this.#gauges.set(name, gauge)
    return gauge
  }
}
