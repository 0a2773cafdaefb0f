/**
 * Server-Sent Events from a `fetch` body. The browser's own `EventSource` cannot send a key, and a key does not belong
 * into a URL.
 */
export interface ServerSentEvent {
  id: string | null
  event: string
  data: string
}

/** Without a byte for so long, the connection is taken for dead; the service sends a comment each 15 s. */
export const SILENCE_MS = 45_000
/** Of one event; ours have some hundred bytes. */
const EVENT_UNITS_MAX = 1_000_000

export async function* readServerSentEvents(
  body: ReadableStream<Uint8Array>,
  silenceMs: number = SILENCE_MS,
): AsyncGenerator<ServerSentEvent> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let pending = ''
  try {
    for (;;) {
      const { done, value } = await withinSilence(reader.read(), silenceMs)
      if (done) return
      pending = (pending + decoder.decode(value, { stream: true })).replaceAll('\r\n', '\n')
      const blocks = pending.split('\n\n')
      pending = blocks.pop() ?? ''
      if (pending.length > EVENT_UNITS_MAX) throw new Error('an event is too long')
      for (const block of blocks) {
        const event = parseBlock(block)
        if (event !== null) yield event
      }
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}

const withinSilence = <T>(reading: Promise<T>, silenceMs: number): Promise<T> => {
  let timer: ReturnType<typeof setTimeout> | undefined
  const silence = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('the stream is silent')), silenceMs)
  })
  return Promise.race([reading, silence]).finally(() => clearTimeout(timer))
}

/** Null for what carries no data: a comment, or the hint when to come back. */
const parseBlock = (block: string): ServerSentEvent | null => {
  let id: string | null = null
  let event = 'message'
  const data: string[] = []
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':')
    if (colon === 0) continue
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '')
    if (field === 'id') id = value
    if (field === 'event') event = value
    if (field === 'data') data.push(value)
  }
  return data.length === 0 ? null : { id, event, data: data.join('\n') }
}
