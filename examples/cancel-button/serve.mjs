// The backend of a product, as small as it can be: it serves the page, and passes exactly two requests on to opledger, with the
// API key that a browser must not have. A real one also checks that this user may see and cancel this operation.
//
//   OPLEDGER_URL=http://127.0.0.1:3000 OPLEDGER_KEY=opl_… PORT=4100 node examples/cancel-button/serve.mjs
import { createReadStream } from 'node:fs'
import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const { OPLEDGER_URL = 'http://127.0.0.1:3000', OPLEDGER_KEY, PORT = '4100' } = process.env
const REASON_BYTES_MAX = 4096

const FILES = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/cancel-button.js': ['cancel-button.js', 'text/javascript; charset=utf-8'],
  '/page.js': ['page.js', 'text/javascript; charset=utf-8'],
  '/cancel-button.css': ['cancel-button.css', 'text/css; charset=utf-8'],
}
const SECURITY = {
  'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
}

/** Those that polling lives by, both ways. */
const ASKED = ['accept', 'content-type', 'if-none-match', 'prefer']
const ANSWERED = ['content-type', 'etag', 'retry-after', 'preference-applied', 'cache-control']

const bodyOf = async (request) => {
  const chunks = []
  let bytes = 0
  for await (const chunk of request) {
    bytes += chunk.length
    if (bytes > REASON_BYTES_MAX) throw new Error('the body is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const passOn = async (request, response, path) => {
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  const headers = Object.fromEntries(
    ASKED.flatMap((name) => (request.headers[name] ? [[name, request.headers[name]]] : [])),
  )
  if (OPLEDGER_KEY) headers.authorization = `Bearer ${OPLEDGER_KEY}`
  const answer = await fetch(`${OPLEDGER_URL}${path}`, {
    method: request.method,
    headers,
    signal: gone.signal,
    ...(request.method === 'POST' && { body: await bodyOf(request) }),
  })
  const passed = ANSWERED.flatMap((name) => (answer.headers.has(name) ? [[name, answer.headers.get(name)]] : []))
  response.writeHead(answer.status, { ...Object.fromEntries(passed), ...SECURITY })
  if (answer.body) await pipeline(Readable.fromWeb(answer.body), response)
  else response.end()
}

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url ?? '/', 'http://localhost')
  const file = request.method === 'GET' ? FILES[pathname] : undefined
  const mayPass =
    (request.method === 'GET' && /^\/operations\/op_\w+$/.test(pathname)) ||
    (request.method === 'POST' && /^\/operations\/op_\w+\/cancel$/.test(pathname))
  try {
    if (file) {
      response.writeHead(200, { 'content-type': file[1], 'cache-control': 'no-cache', ...SECURITY })
      await pipeline(createReadStream(new URL(file[0], import.meta.url)), response)
    } else if (mayPass) await passOn(request, response, pathname)
    else response.writeHead(404, SECURITY).end()
  } catch {
    if (!response.headersSent) response.writeHead(502, SECURITY)
    response.end()
  }
})
server.listen(Number(PORT), '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${PORT}/?operation=op_…\n`)
})
