/** A directory service to try grant-role.yaml against: `node examples/types/provider.mjs`. It grants, and remembers. */
import { createServer } from 'node:http'

const grants = new Map()

const server = createServer(async (request, response) => {
  const answer = (status, body) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  let text = ''
  for await (const chunk of request) text += chunk
  if (request.method === 'GET') {
    const id = grants.get(decodeURIComponent(request.url.slice('/grants/'.length)))
    return id ? answer(200, { id }) : answer(404, {})
  }
  if (request.method === 'DELETE') {
    const granted = decodeURIComponent(request.url.slice('/grants/'.length))
    if (!grants.delete(granted)) return answer(404, {})
    console.log(`took ${granted} back`)
    return answer(200, {})
  }
  const key = request.headers['idempotency-key']
  const { role, user } = JSON.parse(text)
  if (user === 'nobody') return answer(422, { code: 'NO_SUCH_USER' })
  grants.set(key, `grant-${grants.size + 1}`)
  console.log(`granted ${role} to ${user} as ${grants.get(key)}`)
  // Granted, but the answer never comes: what opledger then calls uncertain, and looks up.
  if (user === 'slow') return undefined
  return answer(201, { id: grants.get(key) })
})
server.listen(4000, '127.0.0.1', () => console.log('directory service on http://127.0.0.1:4000'))
