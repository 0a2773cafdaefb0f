/**
 * Hosts of a fleet on one machine: network namespaces, each with two cables to the outside. One leads to the database and can
 * be cut, while the processes on the host and the other cable, to providers and clients, go on. (ip-netns(8), veth(4).)
 *
 *   here   10.213.N.1 ──db──── 10.213.N.2   host N        PostgreSQL listens here
 *          10.214.N.1 ──world─ 10.214.N.2                 the provider here, the api there
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import net from 'node:net'
import { fileURLToPath } from 'node:url'
import { waitForExit, waitForLine } from '../../support/processes.ts'

const API_PORT = 3_000
const API_RELAY_PORT = 3_001
const RELAY = fileURLToPath(new URL('relay.mjs', import.meta.url))
const IP = ['/usr/sbin/ip', '/sbin/ip', '/usr/bin/ip', '/bin/ip'].find(existsSync)

const ip = (...args: string[]): { ok: boolean; output: string } => {
  const { status, stderr } = spawnSync(IP ?? 'ip', args, { encoding: 'utf8' })
  return { ok: status === 0, output: stderr?.trim() ?? '' }
}

const ipOrThrow = (...args: string[]): void => {
  const { ok, output } = ip(...args)
  if (!ok) throw new Error(`ip ${args.join(' ')}: ${output}`)
}

/** Why there are no namespaces here; null: there are. */
export const missingNamespaces = (): string | null => {
  if (process.platform !== 'linux') return 'network namespaces are of Linux'
  if (IP === undefined) return 'there is no ip here: test/faults/set-up.sh installs iproute2'
  const probe = `oplp${process.pid}`
  try {
    for (const step of [
      ['netns', 'add', probe],
      ['link', 'add', `${probe}a`.slice(-15), 'type', 'veth', 'peer', 'name', `${probe}b`.slice(-15)],
    ]) {
      const { ok, output } = ip(...step)
      if (!ok) return `the kernel, or our rights, allow no network namespaces: ${output}`
    }
    return null
  } finally {
    ip('link', 'del', `${probe}a`.slice(-15))
    ip('netns', 'del', probe)
  }
}

/** How the way to the database ends: the cable is pulled elsewhere, or the host's own interface is down. */
export type Cut = 'elsewhere' | 'here'

export interface Host {
  /** Put in front of a command that runs there. */
  readonly command: readonly string[]
  /** Where its api is reached from here. */
  readonly url: string
  readonly env: { DATABASE_URL: string; FAULTS_EFFECTS_URL: string; PORT: string; PUBLIC_URL: string }
  cut(how: Cut): void
  heal(): void
}

interface Hosts {
  readonly all: readonly Host[]
  /** The provider, once it is known where it listens. */
  leadWorldTo(url: string): void
  close(): Promise<void>
}

/** `databaseUrl` is that of a server here, which listens on every address. */
export const openHosts = async (count: number, databaseUrl: string): Promise<Hosts> => {
  const names: string[] = []
  const relays: ChildProcess[] = []
  const worlds: net.Server[] = []
  const sockets = new Set<net.Socket>()
  let provider: URL | null = null

  const link = (name: string, side: 'db' | 'world', n: number): string => {
    const outer = `o${side[0]}${process.pid % 100_000}-${n}`
    const net_ = side === 'db' ? `10.213.${n}` : `10.214.${n}`
    ipOrThrow('link', 'add', outer, 'type', 'veth', 'peer', 'name', side, 'netns', name)
    ipOrThrow('addr', 'add', `${net_}.1/30`, 'dev', outer)
    ipOrThrow('link', 'set', outer, 'up')
    ipOrThrow('-n', name, 'addr', 'add', `${net_}.2/30`, 'dev', side)
    ipOrThrow('-n', name, 'link', 'set', side, 'up')
    return outer
  }

  /** The provider, as a host sees it. */
  const openWorld = async (address: string): Promise<string> => {
    const server = net.createServer((client) => {
      const upstream = net.connect(Number(provider?.port ?? 0), provider?.hostname ?? '127.0.0.1')
      const end = (): void => {
        client.destroy()
        upstream.destroy()
      }
      for (const socket of [client, upstream]) {
        sockets.add(socket)
        socket.setNoDelay(true)
        socket.on('error', end)
        socket.on('close', () => {
          sockets.delete(socket)
          end()
        })
      }
      client.pipe(upstream)
      upstream.pipe(client)
    })
    await new Promise<void>((resolve) => server.listen(0, address, resolve))
    worlds.push(server)
    return `http://${address}:${(server.address() as net.AddressInfo).port}`
  }

  const openHost = async (n: number): Promise<Host> => {
    const name = `opl${process.pid}-${n}`
    ipOrThrow('netns', 'add', name)
    names.push(name)
    ipOrThrow('-n', name, 'link', 'set', 'lo', 'up')
    const cable = link(name, 'db', n)
    link(name, 'world', n)
    const command = [IP ?? 'ip', 'netns', 'exec', name]
    const effectsUrl = await openWorld(`10.214.${n}.1`)
    const database = new URL(databaseUrl)
    database.hostname = `10.213.${n}.1`
    // AUTH=off wants a loopback address: what stands before the api elsewhere is this relay here
    const [program = '', ...rest] = command
    const args = [RELAY, `10.214.${n}.2`, String(API_RELAY_PORT), '127.0.0.1', String(API_PORT)]
    const relay = spawn(program, [...rest, process.execPath, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
    relays.push(relay)
    await waitForLine(relay, /^relay listens$/)
    const url = `http://10.214.${n}.2:${API_RELAY_PORT}`
    return {
      command,
      url,
      // without keys an api answers for the name that it knows itself by, and for no other
      env: {
        DATABASE_URL: database.href,
        FAULTS_EFFECTS_URL: effectsUrl,
        PORT: String(API_PORT),
        PUBLIC_URL: url,
      },
      cut(how) {
        if (how === 'elsewhere') ipOrThrow('link', 'set', cable, 'down')
        else ipOrThrow('-n', name, 'link', 'set', 'db', 'down')
      },
      heal() {
        ipOrThrow('link', 'set', cable, 'up')
        ipOrThrow('-n', name, 'link', 'set', 'db', 'up')
      },
    }
  }

  const close = async (): Promise<void> => {
    for (const relay of relays) {
      relay.kill('SIGKILL')
      await waitForExit(relay)
    }
    for (const socket of sockets) socket.destroy()
    for (const world of worlds) world.close()
    // the cables go with them
    for (const name of names) ip('netns', 'del', name)
  }

  const all: Host[] = []
  try {
    for (let n = 1; n <= count; n++) all.push(await openHost(n))
  } catch (error) {
    await close()
    throw error
  }
  return {
    all,
    leadWorldTo(url) {
      provider = new URL(url)
    },
    close,
  }
}
