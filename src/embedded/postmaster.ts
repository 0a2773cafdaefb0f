import { readFileSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'

/** What `postmaster.pid` says: pid, data directory, start time, port, socket directory, address, shared memory, status. */
export interface PostmasterFile {
  pid: number
  port: number
  status: string
}

export const readPostmasterFile = (cluster: string): PostmasterFile | null => {
  let text: string
  try {
    text = readFileSync(path.join(cluster, 'postmaster.pid'), 'utf8')
  } catch {
    return null
  }
  const lines = text.split('\n')
  return { pid: Number(lines[0]), port: Number(lines[3] ?? 0), status: (lines[7] ?? '').trim() }
}

const PROBE_TIMEOUT_MS = 2_000
const PROTOCOL_VERSION_3 = 196_608

/** The startup message of the PostgreSQL protocol: length, version, and names and values ended by a zero byte. */
const startupMessage = (): Buffer => {
  const body = Buffer.from('user\0opledger\0database\0opledger\0\0')
  const head = Buffer.alloc(8)
  head.writeInt32BE(head.length + body.length, 0)
  head.writeInt32BE(PROTOCOL_VERSION_3, 4)
  return Buffer.concat([head, body])
}

/** True when the server asks for a password, so it accepts sessions; an error (57P03, starting up) or silence is false. */
export const acceptsSessions = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = net.connect({ host: '127.0.0.1', port })
    const end = (answer: boolean) => {
      socket.destroy()
      resolve(answer)
    }
    socket.setTimeout(PROBE_TIMEOUT_MS, () => end(false))
    socket.once('error', () => end(false))
    socket.once('close', () => end(false))
    socket.once('connect', () => socket.write(startupMessage()))
    socket.once('data', (data) => end(data[0] === 'R'.charCodeAt(0)))
  })

/** The port (0: a free one) when it can be listened on, else null. */
export const canListen = (host: string, port: number): Promise<number | null> =>
  new Promise((resolve) => {
    const server = net.createServer()
    server.once('error', () => resolve(null))
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address ? address.port : null))
    })
  })

/** The preferred port when nobody listens there, else a free one. */
export const choosePort = async (preferred: number | null): Promise<number> => {
  const port =
    (preferred === null ? null : await canListen('127.0.0.1', preferred)) ?? (await canListen('127.0.0.1', 0))
  if (port === null) throw new Error('no free port on 127.0.0.1 for the embedded PostgreSQL')
  return port
}
