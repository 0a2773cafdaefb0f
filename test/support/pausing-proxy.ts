import net, { type AddressInfo } from 'node:net'

export interface PausingProxy {
  /** The URL with the proxy in between. */
  url: string
  /** From now on nothing passes, in either direction; connections stay open and new ones wait. */
  pause(): void
  resume(): void
  close(): Promise<void>
}

/** A TCP proxy in front of a database that can hold everything back, as a network that went quiet does. */
export const openPausingProxy = async (databaseUrl: string): Promise<PausingProxy> => {
  const target = new URL(databaseUrl)
  const sockets = new Set<net.Socket>()
  let paused = false

  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from)
      from.on('data', (chunk) => to.write(chunk))
      from.on('error', () => to.destroy())
      from.on('close', () => {
        sockets.delete(from)
        to.destroy()
      })
      if (paused) from.pause()
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    pause() {
      paused = true
      for (const socket of sockets) socket.pause()
    },
    resume() {
      paused = false
      for (const socket of sockets) socket.resume()
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}
