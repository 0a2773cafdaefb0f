/** What JSON from outside holds at a JSON pointer (RFC 6901). Only own members are seen. */
export const readPointer = (root: unknown, pointer: string): unknown => {
  let value = root
  for (const token of pointer.slice(1).split('/')) {
    const member = token.replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, member)) return undefined
    value = Reflect.get(value, member)
  }
  return value
}

/** A text or number as text. JSON.parse has rounded larger integers already: they would name another object. */
export const textOf = (value: unknown): string | undefined => {
  if (typeof value === 'string') return value
  return typeof value === 'number' && (!Number.isInteger(value) || Number.isSafeInteger(value))
    ? String(value)
    : undefined
}
