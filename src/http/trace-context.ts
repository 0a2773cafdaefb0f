const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** A valid W3C `traceparent`, or null: as the standard asks, a broken one is dropped, not refused. */
export const traceparentOf = (header: string | string[] | undefined): string | null =>
  typeof header === 'string' && TRACEPARENT.test(header) ? header : null
