/**
 * Receives webhooks and checks their signatures: `WEBHOOK_SECRET=whsec_… node examples/webhooks/receiver.mjs`. It prints one
 * line for each.
 */
import { createServer } from 'node:http'
import { Webhook } from 'standardwebhooks'

const port = Number(process.env.PORT ?? 4001)
const webhook = new Webhook(process.env.WEBHOOK_SECRET)

const server = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  try {
    // The bytes as they came, before anything parses them. It throws, also for what is older than 5 minutes.
    const { type, data } = webhook.verify(Buffer.concat(chunks).toString(), request.headers)
    console.log(request.headers['webhook-id'], type, data.operation.id, data.operation.status)
    response.writeHead(204).end()
  } catch {
    response.writeHead(401).end()
  }
})
server.listen(port, '127.0.0.1', () => console.log(`webhooks are received on http://127.0.0.1:${port}`))
