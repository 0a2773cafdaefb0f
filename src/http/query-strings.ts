import { AppError } from '../domain/errors.ts'
import { findTextFault } from './text.ts'

/**
 * The query of a URL, strictly: a bad percent escape or text that cannot be stored is refused here, once, instead of
 * being passed on half-decoded. A parameter that is given twice becomes a list, which scalar schemas refuse.
 * The object has no prototype, so a parameter may have any name.
 */
export const parseQuery = (query: string): Record<string, string | string[]> => {
  const parameters: Record<string, string | string[]> = Object.create(null)
  for (const pair of query.split('&')) {
    if (pair === '') continue
    const equals = pair.indexOf('=')
    const name = decode(equals === -1 ? pair : pair.slice(0, equals))
    const value = decode(equals === -1 ? '' : pair.slice(equals + 1))
    const before = parameters[name]
    parameters[name] = before === undefined ? value : Array.isArray(before) ? [...before, value] : [before, value]
  }
  return parameters
}

const decode = (text: string): string => {
  let decoded: string
  try {
    decoded = decodeURIComponent(text.replaceAll('+', ' '))
  } catch (cause) {
    throw new AppError('malformed-request', 'The query contains an invalid percent escape', { cause })
  }
  const fault = findTextFault(decoded)
  if (fault !== null) throw new AppError('invalid-text', `A query parameter ${fault}`)
  return decoded
}
