import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Received {
  path: string
  headers: Record<string, string>
  /** The exact bytes. */
  body: Buffer
}

type Answer = number | ((response: ServerResponse) => void)

/** A receiver of webhooks on 127.0.0.1: it keeps what it gets, and answers what it was told to, then 204. */
export interface WebhookReceiver {
  url: string
  received: Received[]
  /** For the requests to come, in their order. */
  answer(...answers: Answer[]): void
  /** Requests without an answer yet, now and at most. */
  inFlight(): { now: number; most: number }
  close(): Promise<void>
}

export const startWebhookReceiver = async (): Promise<WebhookReceiver> => {
  const received: Received[] = []
  const answers: Answer[] = []
  let now = 0
  let most = 0

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    most = Math.max(most, ++now)
    response.once('close', () => now--)
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]))
    received.push({ path: request.url ?? '', headers, body: Buffer.concat(chunks) })
    const answer = answers.shift() ?? 204
    if (typeof answer === 'number') response.writeHead(answer).end()
    else answer(response)
  }
  const server = createServer((request, response) => {
    // a sender that gives up cuts the connection
    serve(request, response).catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    answer: (...more) => void answers.push(...more),
    inFlight: () => ({ now, most }),
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
