/**
 * Ids are uuids inside and `prefix_<32 hex>` at the edge: opaque to clients, greppable in logs, and an id of one
 * resource is never taken for another's.
 */
export type IdPrefix = 'op' | 'case' | 'dl' | 'inc' | 'pf' | 'wh' | 'bulk' | 'art'

export const formatId = (prefix: IdPrefix, uuid: string): string => `${prefix}_${uuid.replaceAll('-', '')}`

/** The uuid of an edge id, or null when the text is not an id of that kind (answer 404, not 400: ids are opaque). */
export const parseId = (prefix: IdPrefix, text: string): string | null => {
  const hex = text.startsWith(`${prefix}_`) ? text.slice(prefix.length + 1) : ''
  if (!/^[0-9a-f]{32}$/.test(hex)) return null
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
