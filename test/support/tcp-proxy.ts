/**
 * A TCP proxy in front of PostgreSQL that understands just enough of its protocol to meet one statement: to cut the
 * connection before it, or to let the server carry it out and lose the reply. (PostgreSQL documentation, "Message Formats".)
 * It can also go quiet, refuse, and lead to another server, as networks do.
 */
import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'

export type Verdict =
  | 'pass'
  /** The server never sees it. */
  | 'cut'
  /** The server carries it out; its reply, and everything after it, is lost. */
  | 'lose-reply'
  /** The server never sees it; the client is told that it was cancelled. For statements that are sent as text. */
  | 'refuse'

export interface TcpProxy {
  /** The URL with the proxy in between. */
  url: string
  /** Open ones of the client. */
  connections(): number
  /** Refuses new connections and cuts those there are. */
  refuse(): Promise<void>
  accept(): Promise<void>
  /** Cuts the connections there are; new ones are welcome. */
  cut(): void
  /** From now on nothing passes, in either direction; connections stay open and new ones wait. */
  pause(): void
  resume(): void
  /** New connections go to this server; those there are stay where they are. */
  leadTo(databaseUrl: string): void
  close(): Promise<void>
}

/** Splits a stream into messages: a type byte and a length that counts itself. `untyped` messages come first without a type. */
class Messages {
  private rest = Buffer.alloc(0)
  private untyped: number

  constructor(untyped: number) {
    this.untyped = untyped
  }

  *add(chunk: Buffer): Generator<Buffer> {
    this.rest = Buffer.concat([this.rest, chunk])
    for (;;) {
      const head = this.untyped > 0 ? 0 : 1
      if (this.rest.length < head + 4) return
      const end = head + this.rest.readUInt32BE(head)
      if (this.rest.length < end) return
      if (this.untyped > 0) this.untyped--
      yield this.rest.subarray(0, end)
      this.rest = this.rest.subarray(end)
    }
  }
}

const textAt = (message: Buffer, offset: number): string => message.toString('utf8', offset, message.indexOf(0, offset))

const messageOf = (type: string, body: string): Buffer => {
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeUInt32BE(4 + Buffer.byteLength(body), 1)
  return Buffer.concat([head, Buffer.from(body)])
}
/** ErrorResponse and ReadyForQuery, idle. */
const CANCELLED = Buffer.concat([messageOf('E', 'SERROR\0VERROR\0C57014\0Mcancelled\0\0'), messageOf('Z', 'I')])

/** Which statement a message of the client runs; null: none. Prepared ones are known by the name they were parsed under. */
const statementReader = () => {
  const parsed = new Map<string, string>()
  return (message: Buffer): string | null => {
    const type = String.fromCharCode(message[0] ?? 0)
    if (type === 'Q') return textAt(message, 5)
    const first = textAt(message, 5)
    const second = textAt(message, 5 + Buffer.byteLength(first) + 1)
    if (type === 'P') parsed.set(first, second)
    return type === 'B' ? (parsed.get(second) ?? null) : null
  }
}

export const openTcpProxy = async (
  databaseUrl: string,
  decide: (statement: string) => Verdict = () => 'pass',
): Promise<TcpProxy> => {
  let target = new URL(databaseUrl)
  const sockets = new Set<net.Socket>()
  let paused = false

  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    const cut = () => {
      client.destroy()
      upstream.destroy()
    }
    for (const socket of [client, upstream]) {
      // messages are passed on one by one: without this each of them waits for the acknowledgement of the last, 40 ms
      socket.setNoDelay(true)
      sockets.add(socket)
      if (paused) socket.pause()
      socket.on('error', cut)
      socket.on('close', () => {
        sockets.delete(socket)
        cut()
      })
    }
    const statementOf = statementReader()
    const [fromClient, fromServer] = [new Messages(1), new Messages(0)]
    let started = false
    /** Replies that end with ReadyForQuery: asked for, given (the first one ends the login), and the first that is lost. */
    let asked = 1
    let given = 0
    let lostFrom = Number.POSITIVE_INFINITY

    client.on('data', (chunk: Buffer) => {
      for (const message of fromClient.add(chunk)) {
        const statement = started ? statementOf(message) : null
        started = true
        const verdict = statement === null ? 'pass' : decide(statement.trim().toLowerCase())
        if (verdict === 'cut') return cut()
        if (verdict === 'refuse') {
          client.write(CANCELLED)
          continue
        }
        if (verdict === 'lose-reply') lostFrom = Math.min(lostFrom, asked)
        upstream.write(message)
        const type = String.fromCharCode(message[0] ?? 0)
        if (type === 'S' || type === 'Q') asked++
      }
    })
    upstream.on('data', (chunk: Buffer) => {
      for (const message of fromServer.add(chunk)) {
        if (given < lostFrom) client.write(message)
        if (String.fromCharCode(message[0] ?? 0) !== 'Z') continue
        given++
        if (given > lostFrom) cut()
      }
    })
  })

  const listen = async (port: number): Promise<void> => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  await listen(0)
  const { port } = server.address() as AddressInfo
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String(port)

  const cutAll = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  const refuse = async (): Promise<void> => {
    const closed = once(server, 'close')
    server.close()
    cutAll()
    await closed
  }
  return {
    url: url.href,
    connections: () => sockets.size / 2,
    refuse,
    accept: () => listen(port),
    cut: cutAll,
    pause() {
      paused = true
      for (const socket of sockets) socket.pause()
    },
    resume() {
      paused = false
      for (const socket of sockets) socket.resume()
    },
    leadTo: (url) => {
      target = new URL(url)
    },
    close: async () => {
      if (server.listening) await refuse()
    },
  }
}
