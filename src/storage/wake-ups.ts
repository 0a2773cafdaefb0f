/**
 * Wake-ups over LISTEN/NOTIFY, and nothing more: losing every one changes latency only, as each listener also polls.
 *
 * NOTIFY takes a global lock at commit, so it never stands in a transaction of work: each process sends on a connection of
 * its own, at once when idle and then at most one coalesced message per COALESCE_MS. LISTEN needs a session of its own: a
 * PgBouncer in transaction mode takes the statement, and what is told then reaches nobody, or somebody else. So it goes to
 * `listenUrl`, straight to the server; NOTIFY may go through the pooler.
 */
import postgres from 'postgres'

export type WakeUp =
  /** Shards may be due. */
  | 'work'
  /** A shard that somebody holds was told to stop. */
  | 'stop'
  /** An operation changed. */
  | 'change'

export interface WakeUps {
  send(kind: WakeUp): void
  /** `listener` is called for every wake-up of that kind, and after every reconnect, as some may have been lost. */
  on(kind: WakeUp, listener: () => void): () => void
  close(): Promise<void>
}

const CHANNEL = 'opledger'
const COALESCE_MS = 20
const RETRY_MS = 1_000

export const openWakeUps = (options: {
  url: string
  /** Default: `url`. */
  listenUrl?: string
  name: string
  /** Told once each time listening stops working. */
  onFault: (error: unknown) => void
}): WakeUps => {
  const connect = (url: string): postgres.Sql =>
    postgres(url, {
      max: 1,
      fetch_types: false,
      prepare: false,
      idle_timeout: 0,
      connect_timeout: 5,
      max_lifetime: null,
      onnotice: () => {},
      connection: { application_name: `${options.name} wake-ups` },
    })
  const listenUrl = options.listenUrl ?? options.url
  const listeners = new Map<WakeUp, Set<() => void>>()
  const queued = new Set<WakeUp>()
  let sender = connect(options.url)
  let receiver = connect(listenUrl)
  let timer: NodeJS.Timeout | null = null
  let retry: NodeJS.Timeout | null = null
  let closed = false

  const tell = (kind: WakeUp): void => {
    for (const listener of listeners.get(kind) ?? []) listener()
  }
  const tellAll = (): void => {
    for (const kind of listeners.keys()) tell(kind)
  }

  const listen = (): void => {
    receiver
      .listen(
        CHANNEL,
        (payload) => {
          for (const kind of payload.split(',')) tell(kind as WakeUp)
        },
        tellAll,
      )
      .catch((error: unknown) => {
        if (closed) return
        options.onFault(error)
        receiver.end({ timeout: 0 }).catch(() => {})
        retry = setTimeout(() => {
          receiver = connect(listenUrl)
          listen()
        }, RETRY_MS)
      })
  }
  listen()

  const flush = (): void => {
    timer = null
    if (queued.size === 0 || closed) return
    const payload = [...queued].join(',')
    queued.clear()
    timer = setTimeout(flush, COALESCE_MS)
    // as one message: with parameters it would be described first, as nothing is prepared here. All of it are words of ours
    sender.unsafe(`select pg_notify('${CHANNEL}', '${payload}')`).catch(() => {
      // a lost wake-up costs latency only
      if (closed) return
      sender.end({ timeout: 0 }).catch(() => {})
      sender = connect(options.url)
    })
  }

  return {
    send(kind) {
      queued.add(kind)
      // immediate when nothing was sent lately; what comes meanwhile shares the next message
      if (timer === null) flush()
    },
    on(kind, listener) {
      const set = listeners.get(kind) ?? new Set()
      set.add(listener)
      listeners.set(kind, set)
      return () => set.delete(listener)
    },
    async close() {
      closed = true
      if (timer) clearTimeout(timer)
      if (retry) clearTimeout(retry)
      await Promise.all([sender, receiver].map((client) => client.end({ timeout: 1 }).catch(() => {})))
    },
  }
}
