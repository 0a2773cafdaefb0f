/** Which page a URL names, and the other way round. Filters and places in lists are its query, so a link shows the same. */
export const BASE = '/console'

export type Route =
  | { page: 'today' }
  | { page: 'operations' }
  | { page: 'operation'; id: string }
  | { page: 'item'; id: string; key: string }
  | { page: 'replay'; id: string }
  | { page: 'reconciliation' }
  | { page: 'incidents' }
  | { page: 'incident'; id: string }
  | { page: 'types' }
  | { page: 'workers' }
  | { page: 'unknown' }

const decode = (step: string): string | null => {
  try {
    return decodeURIComponent(step)
  } catch {
    return null
  }
}

export const parseRoute = (pathname: string): Route => {
  const rest = pathname.startsWith(BASE) ? pathname.slice(BASE.length) : pathname
  const steps = rest.split('/').filter((step) => step !== '')
  const decoded = steps.map(decode)
  const [page, id, below, key] = decoded
  if (decoded.includes(null)) return { page: 'unknown' }
  if (steps.length === 0) return { page: 'today' }
  if (steps.length === 1) {
    switch (page) {
      case 'operations':
      case 'reconciliation':
      case 'incidents':
      case 'types':
      case 'workers':
        return { page }
    }
  }
  if (steps.length === 2 && id) {
    if (page === 'operations') return { page: 'operation', id }
    if (page === 'incidents') return { page: 'incident', id }
  }
  if (steps.length === 3 && page === 'operations' && id && below === 'replay') return { page: 'replay', id }
  if (steps.length === 4 && page === 'operations' && id && below === 'items' && key) return { page: 'item', id, key }
  return { page: 'unknown' }
}

export const pathOf = (route: Route): string => {
  switch (route.page) {
    case 'today':
    case 'unknown':
      return BASE
    case 'operations':
    case 'reconciliation':
    case 'incidents':
    case 'types':
    case 'workers':
      return `${BASE}/${route.page}`
    case 'operation':
      return `${BASE}/operations/${encodeURIComponent(route.id)}`
    case 'item':
      return `${BASE}/operations/${encodeURIComponent(route.id)}/items/${encodeURIComponent(route.key)}`
    case 'replay':
      return `${BASE}/operations/${encodeURIComponent(route.id)}/replay`
    case 'incident':
      return `${BASE}/incidents/${encodeURIComponent(route.id)}`
  }
}

export type Query = Readonly<Record<string, string>>

export const parseQuery = (search: string): Query => Object.fromEntries(new URLSearchParams(search))

/** Empty values are left out: a URL names what is chosen, not what is not. */
export const urlWith = (path: string, query: Readonly<Record<string, string | undefined>>): string => {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') search.append(name, value)
  return search.size === 0 ? path : `${path}?${search}`
}

/** A place in a list holds for one choice of filters only. */
const isCursor = (name: string): boolean => name === 'cursor' || name.endsWith('_cursor')

/** The query with other filters, at the beginning of its lists. */
export const withFilters = (query: Query, changes: Readonly<Record<string, string | undefined>>): Query => {
  const kept = Object.entries(query).filter(([name]) => !isCursor(name))
  const all = { ...Object.fromEntries(kept), ...changes }
  return Object.fromEntries(
    Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== ''),
  )
}

/** `a,b` as the API takes lists. */
export const listOf = (value: string | undefined): string[] => (value ?? '').split(',').filter((one) => one !== '')
