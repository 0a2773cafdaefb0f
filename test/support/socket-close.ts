import type { Socket } from 'node:net'

/**
 * Once it is closed, by whomever, and whatever error came first: what a peer cuts tells one where it is written to. (`once` of
 * node:events rejects then.)
 */
export const untilClosed = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    socket.on('error', () => {})
    socket.once('close', () => resolve())
  })
