import type { FastifyInstance } from 'fastify'
import { REQUEST_TIMEOUT_MS } from './limits.ts'

/**
 * Node knows one time for all requests, which is that of uploads. Here every other body gets less: when it is over, the
 * connection is answered and closed as Node would have done.
 */
export const endSlowBodies = (app: FastifyInstance): void => {
  app.addHook('preParsing', ({ raw, routeOptions, method }, _reply, _payload, done) => {
    if (routeOptions.config.readsStream || method === 'GET' || method === 'HEAD') return done()
    const timer = setTimeout(() => {
      const error = Object.assign(new Error('the body did not arrive in time'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
      app.server.emit('clientError', error, raw.socket)
    }, REQUEST_TIMEOUT_MS)
    for (const event of ['end', 'close']) raw.once(event, () => clearTimeout(timer))
    done()
  })
}
