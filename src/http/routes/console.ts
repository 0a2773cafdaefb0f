import { fileURLToPath } from 'node:url'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { AppError } from '../../domain/errors.ts'
import type { App } from '../app.ts'
import { type ConsoleFile, ConsoleFiles } from '../console-files.ts'
import { CONSOLE_RETRY_SECONDS, renderConsoleAbsence } from '../console-page.ts'

/** The same place from a checkout (`src/`) and from a build (`dist/`). */
export const CONSOLE_DIRECTORY = fileURLToPath(new URL('../../../dist/console', import.meta.url))

/** Scripts, styles and requests of this origin, nothing else and nothing inline. */
const CONSOLE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const ONE_YEAR_SECONDS = 31_536_000
const ASSETS = 'assets/'

/**
 * The operators' page. Open to everybody, as it holds no data: what it shows it asks the API for, with the key that the
 * person enters. Every path below it is the page itself, except files, which are there or not.
 */
export const addConsoleRoutes = (app: App, directory: string): void => {
  const files = new ConsoleFiles(directory)
  const options = { config: { access: 'open' }, schema: { hide: true } } as const
  app.get('/console', options, async (request, reply) => sendPage(request, reply, files))
  app.get<{ Params: { '*': string } }>('/console/*', options, async (request, reply) => {
    const name = request.params['*']
    const state = files.state()
    const file = files.file(name)
    if (file !== null && name.startsWith(ASSETS)) return sendFile(request, reply, file)
    // a file of a build that is gone; the page in its place would be taken for a broken script
    if (state === 'ready' && name.startsWith(ASSETS)) throw new AppError('not-found', 'The console has no such file')
    return file === null ? sendPage(request, reply, files) : sendFile(request, reply, file)
  })
}

const sendPage = (request: FastifyRequest, reply: FastifyReply, files: ConsoleFiles): FastifyReply => {
  const state = files.state()
  const index = files.index()
  if (state === 'ready' && index !== null) return sendFile(request, reply, index)
  return reply
    .code(503)
    .header('retry-after', String(CONSOLE_RETRY_SECONDS))
    .header('cache-control', 'no-store')
    .header('content-type', 'text/html; charset=utf-8')
    .send(renderConsoleAbsence(state === 'building' ? 'building' : 'missing'))
}

const sendFile = (request: FastifyRequest, reply: FastifyReply, file: ConsoleFile): FastifyReply => {
  reply
    .header('etag', file.etag)
    .header('vary', 'accept-encoding')
    .header('cache-control', file.immutable ? `public, max-age=${ONE_YEAR_SECONDS}, immutable` : 'no-cache')
    .header('content-security-policy', CONSOLE_POLICY)
  if (request.headers['if-none-match'] === file.etag) return reply.code(304).send()
  reply.header('content-type', file.contentType)
  if (file.gzipped === null || !acceptsGzip(request.headers['accept-encoding'])) return reply.send(file.content)
  return reply.header('content-encoding', 'gzip').send(file.gzipped)
}

const acceptsGzip = (header: string | string[] | undefined): boolean =>
  /(^|,)\s*gzip\s*(;\s*q=(1|0?\.[1-9])\d*(\.0*)?)?\s*(,|$)/i.test(String(header ?? ''))
