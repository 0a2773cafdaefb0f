import type { FastifyInstance, FastifyReply } from 'fastify'

/**
 * What a browser is told about every answer. It holds data, or a problem: nothing in it is to be run, shown in a frame, guessed
 * at, or read by pages of other origins. Pages of ours (the documentation, the console) have policies of their own.
 *
 * No header here makes a browser insist on https: this process speaks plain HTTP, and whoever ends TLS before it is the one
 * to promise that (`Strict-Transport-Security`).
 */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': "default-src 'none';base-uri 'none';form-action 'none';frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'SAMEORIGIN',
}

/** On whatever reaches a hook. They never change, so nothing is worked out for a request. */
export const addSecurityHeaders = (app: FastifyInstance): void => {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(SECURITY_HEADERS)
    done()
  })
}

/** On what is answered before there are hooks: broken HTTP, bad URLs, what Node refuses. Adds what is not there yet. */
export const secure = (reply: FastifyReply): void => {
  for (const [name, value] of Object.entries(SECURITY_HEADERS)) if (!reply.hasHeader(name)) reply.header(name, value)
}
