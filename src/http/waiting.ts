import type { FastifyRequest } from 'fastify'
import type { OperationView } from '../services/views.ts'
import type { Services } from './deps.ts'
import type { Waiters } from './waiters.ts'

interface Wait {
  seconds: number
  seenVersion: number | null
}

/**
 * Holds the request until the operation changes (or settles, for `seenVersion` null), the time is over, or the client
 * is gone. Null when the operation does not exist.
 */
export const waitForOperation = async (
  request: FastifyRequest,
  id: string,
  { seconds, seenVersion }: Wait,
  { services, waiters }: { services: Pick<Services, 'waitForChange'>; waiters: Waiters },
): Promise<OperationView | null> => {
  const place = waiters.enter('poll')
  const onClose = () => place.abort()
  request.raw.socket.once('close', onClose)
  try {
    return await services.waitForChange(request.principal, id, { seconds, seenVersion, signal: place.signal })
  } finally {
    request.raw.socket.off('close', onClose)
    waiters.leave(place)
  }
}
