/**
 * Traces, where `OTEL_EXPORTER_OTLP_ENDPOINT` names somebody who takes them; without it nothing of this is loaded. A process
 * makes its spans by hand and names their parents itself: nothing is patched, and no context is carried along in the runtime.
 *
 *   POST (server, child of the caller's span) ── stored with the operation ──▶ link
 *     shard run (worker, a trace of its own: an operation may take days) ─▶ link to the POST
 *       call, batch (children of the run) ─▶ link to the POST
 *
 * What its caller did not sample is not recorded here either. Names and attributes are bounded: routes, types, states, ids of
 * operations; never inputs, keys of items or effects. What cannot be sent in time is dropped, and never waited for.
 */

export type Attributes = Readonly<Record<string, string | number | boolean>>

export interface Span {
  /** Null: it is not recorded. */
  readonly traceparent: string | null
  set(attributes: Attributes): void
  end(status: 'ok' | 'error'): void
}

export interface SpanOptions {
  kind: 'server' | 'client' | 'consumer' | 'internal'
  /** A `traceparent`; null: it begins a trace. */
  parent?: string | null
  /** What it follows from, as a `traceparent`. */
  link?: string | null
  attributes?: Attributes
}

export interface Tracing {
  start(name: string, options: SpanOptions): Span
  /** Sends what is left, for a short while. */
  close(): Promise<void>
}

export const NO_SPAN: Span = { traceparent: null, set: () => {}, end: () => {} }

export interface TracingSettings {
  /** Of the collector, without `/v1/traces`. */
  endpoint: string
  headers: Readonly<Record<string, string>>
  serviceName: string
}

/** Spans that wait to be sent; more are dropped. */
const QUEUE_MAX = 4_096
const BATCH_MAX = 512
const SEND_EVERY_MS = 1_000
const SEND_TIMEOUT_MS = 5_000
const CLOSE_MS = 3_000
const ATTRIBUTES_MAX = 16
const ATTRIBUTE_CHARS_MAX = 256
const LINKS_MAX = 1

const isSampled = (traceparent: string): boolean => (Number.parseInt(traceparent.slice(-2), 16) & 1) === 1

/** Null: nobody takes traces. */
export const openTracing = async (settings: TracingSettings | null, process: string): Promise<Tracing | null> => {
  if (settings === null) return null
  const [{ ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace }, sdk, { OTLPTraceExporter }, resources] =
    await Promise.all([
      import('@opentelemetry/api'),
      import('@opentelemetry/sdk-trace-base'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
    ])
  const exporter = new OTLPTraceExporter({
    url: `${settings.endpoint}/v1/traces`,
    headers: { ...settings.headers },
    timeoutMillis: SEND_TIMEOUT_MS,
  })
  const provider = new sdk.BasicTracerProvider({
    resource: resources.resourceFromAttributes({
      'service.name': settings.serviceName,
      'service.namespace': 'opledger',
      'opledger.process': process,
    }),
    sampler: new sdk.ParentBasedSampler({ root: new sdk.AlwaysOnSampler() }),
    spanLimits: {
      attributeCountLimit: ATTRIBUTES_MAX,
      attributeValueLengthLimit: ATTRIBUTE_CHARS_MAX,
      linkCountLimit: LINKS_MAX,
    },
    spanProcessors: [
      new sdk.BatchSpanProcessor(exporter, {
        maxQueueSize: QUEUE_MAX,
        maxExportBatchSize: BATCH_MAX,
        scheduledDelayMillis: SEND_EVERY_MS,
        exportTimeoutMillis: SEND_TIMEOUT_MS,
      }),
    ],
  })
  const tracer = provider.getTracer('opledger')
  const kinds = {
    server: SpanKind.SERVER,
    client: SpanKind.CLIENT,
    consumer: SpanKind.CONSUMER,
    internal: SpanKind.INTERNAL,
  }
  const contextOf = (traceparent: string) => {
    const [, traceId = '', spanId = ''] = traceparent.split('-')
    const traceFlags = isSampled(traceparent) ? TraceFlags.SAMPLED : TraceFlags.NONE
    return { traceId, spanId, traceFlags, isRemote: true }
  }

  return {
    start(name, { kind, parent = null, link = null, attributes = {} }) {
      if (parent === null && link !== null && !isSampled(link)) return NO_SPAN
      const span = tracer.startSpan(
        name,
        {
          kind: kinds[kind],
          attributes: { ...attributes },
          links: link === null ? [] : [{ context: contextOf(link) }],
        },
        parent === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, contextOf(parent)),
      )
      if (!span.isRecording()) return NO_SPAN
      const { traceId, spanId } = span.spanContext()
      return {
        traceparent: `00-${traceId}-${spanId}-01`,
        set: (more) => void span.setAttributes({ ...more }),
        end(status) {
          if (status === 'error') span.setStatus({ code: SpanStatusCode.ERROR })
          span.end()
        },
      }
    },
    async close() {
      let timer: NodeJS.Timeout | undefined
      const patience = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, CLOSE_MS)
      })
      // whoever takes traces may be away: what is left is lost then
      await Promise.race([provider.shutdown().catch(() => {}), patience])
      clearTimeout(timer)
    },
  }
}
