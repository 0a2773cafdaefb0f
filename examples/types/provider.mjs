/**
 * A directory service to try grant-role.yaml against: `node examples/types/provider.mjs`. It grants, remembers and takes
 * back, and some users meet its bad days: `nobody` is unknown, `slow` is granted without an answer, `busy` is turned away
 * three times, and for `lost` there is neither an answer nor, later, anybody who could say what became of it.
 */
import { createServer } from 'node:http'

const port = Number(process.env.PORT ?? 4000)
const grants = new Map()
let turnedAway = 0

const server = createServer(async (request, response) => {
  const answer = (status, body) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  let text = ''
  for await (const chunk of request) text += chunk
  const named = decodeURIComponent(request.url.slice('/grants/'.length))
  if (request.method === 'GET') {
    if (named.endsWith(':lost')) return answer(503, { code: 'BEING_REPAIRED' })
    const id = grants.get(named)
    return id ? answer(200, { id }) : answer(404, {})
  }
  if (request.method === 'DELETE') {
    if (!grants.delete(named)) return answer(404, {})
    console.log(`took ${named} back`)
    return answer(200, {})
  }
  const key = request.headers['idempotency-key']
  const { role, user } = JSON.parse(text)
  if (user === 'nobody') return answer(422, { code: 'NO_SUCH_USER' })
  if (user === 'busy' && turnedAway++ < 3) return answer(503, { code: 'TRY_LATER' })
  grants.set(key, `grant-${grants.size + 1}`)
  console.log(`granted ${role} to ${user} as ${grants.get(key)}`)
  if (user === 'slow' || user === 'lost') return undefined
  return answer(201, { id: grants.get(key) })
})
server.listen(port, '127.0.0.1', () => console.log(`directory service on http://127.0.0.1:${port}`))
