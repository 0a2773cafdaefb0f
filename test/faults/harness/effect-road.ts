/**
 * The network between the workers and the effect server: it delivers, but it may take its time with a request. Who has sent it
 * may have given up, or be gone, when it arrives.
 */
import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import { makeGate } from './traps.ts'

export interface EffectRoad {
  /** For the processes: FAULTS_EFFECTS_URL. */
  url: string
  /** Where it leads; before this nothing may be sent. */
  leadTo(effectsUrl: string): void
  /** The next request with this effect key stays on its way until it is delivered. */
  holdBack(effectKey: string): { taken: Promise<void>; deliver(): void }
  close(): Promise<void>
}

/** A request of the suite is one chunk. */
const isOf = (chunk: Buffer, effectKey: string): boolean =>
  chunk.toString('latin1').toLowerCase().includes(`\r\nidempotency-key: ${effectKey}\r\n`.toLowerCase())

export const openEffectRoad = async (): Promise<EffectRoad> => {
  let target: URL | null = null
  const sockets = new Set<net.Socket>()
  const waiting = new Map<string, { take: () => void; delivered: Promise<void> }>()

  const server = net.createServer({ allowHalfOpen: true }, (client) => {
    const provider = net.connect({ port: Number(target?.port), host: target?.hostname, allowHalfOpen: true })
    let isHeld = false
    for (const socket of [client, provider]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
    }
    client.on('data', (chunk: Buffer) => {
      const key = [...waiting.keys()].find((each) => isOf(chunk, each))
      const held = key === undefined ? undefined : waiting.get(key)
      if (key === undefined || held === undefined) return provider.write(chunk)
      waiting.delete(key)
      // from now on it does not matter to the provider what becomes of the client: the request is complete, and under way
      isHeld = true
      held.take()
      return void held.delivered.then(() => provider.write(chunk))
    })
    client.on('end', () => isHeld || provider.end())
    client.on('close', () => isHeld || provider.destroy())
    provider.on('data', (chunk) => client.write(chunk))
    provider.on('end', () => client.end())
    provider.on('close', () => client.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    leadTo(effectsUrl) {
      target = new URL(effectsUrl)
    },
    holdBack(effectKey) {
      const [taken, delivered] = [makeGate(), makeGate()]
      waiting.set(effectKey, { take: taken.open, delivered: delivered.opened })
      return { taken: taken.opened, deliver: delivered.open }
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
