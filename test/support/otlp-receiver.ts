/** Who takes traces in a test: the OTLP/HTTP endpoint of a collector, with what it was sent. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ReceivedSpan {
  /** Of its resource. */
  process: string
  name: string
  /** As OTLP numbers them: 1 internal, 2 server, 3 client, 5 consumer. */
  kind: number
  traceId: string
  spanId: string
  parentSpanId?: string
  attributes: Record<string, unknown>
  links: { traceId: string; spanId: string }[]
  failed: boolean
}

export interface OtlpReceiver {
  url: string
  spans: ReceivedSpan[]
  /** All bodies, one behind the other. */
  text(): string
  headers: IncomingHttpHeaders[]
  close(): Promise<void>
}

interface Attribute {
  key: string
  value: Record<string, unknown>
}
interface Export {
  resourceSpans: {
    resource: { attributes: Attribute[] }
    scopeSpans: {
      spans: {
        name: string
        kind: number
        traceId: string
        spanId: string
        parentSpanId?: string
        attributes?: Attribute[]
        links?: { traceId: string; spanId: string }[]
        status?: { code?: number }
      }[]
    }[]
  }[]
}

const OTLP_ERROR = 2

const toRecord = (attributes: readonly Attribute[] = []): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))

export const startOtlpReceiver = async (): Promise<OtlpReceiver> => {
  const spans: ReceivedSpan[] = []
  const headers: IncomingHttpHeaders[] = []
  let all = ''
  const server = createServer(async (request, response) => {
    let text = ''
    for await (const chunk of request) text += String(chunk)
    headers.push(request.headers)
    all += text
    if (request.url === '/v1/traces') {
      const { resourceSpans }: Export = JSON.parse(text)
      for (const { resource, scopeSpans } of resourceSpans) {
        const process = String(toRecord(resource.attributes)['opledger.process'])
        for (const span of scopeSpans.flatMap((scope) => scope.spans)) {
          const { name, kind, traceId, spanId, parentSpanId, attributes, links = [], status } = span
          spans.push({
            process,
            name,
            kind,
            traceId,
            spanId,
            ...(parentSpanId ? { parentSpanId } : {}),
            attributes: toRecord(attributes),
            links: links.map((link) => ({ traceId: link.traceId, spanId: link.spanId })),
            failed: status?.code === OTLP_ERROR,
          })
        }
      }
    }
    response.setHeader('content-type', 'application/json')
    response.end('{}')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    headers,
    text: () => all,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
