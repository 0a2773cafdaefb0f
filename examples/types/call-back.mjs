/** Plays a provider that calls back: `WEBHOOK_SECRET=whsec_… node examples/types/call-back.mjs URL EVENT_ID JSON`. */
import { Webhook } from 'standardwebhooks'

const [url, id, body] = process.argv.slice(2)
const at = new Date()
const answer = await fetch(url, {
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
    'webhook-signature': new Webhook(process.env.WEBHOOK_SECRET).sign(id, at, body),
  },
  body,
})
console.log(answer.status, await answer.text())
