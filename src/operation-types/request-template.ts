/**
 * An HTTP request of a type file, compiled at the start and filled in per call. The origin is fixed at the start, so
 * that no input chooses the host; values are percent-encoded in the URL and made safe in headers.
 */
import type { InputIssue, Json } from '../domain/operation-type.ts'
import { DefinitionError } from '../domain/operation-type-definition.ts'
import {
  compileTemplate,
  describePart,
  encodeHeaderValue,
  encodeUrlValue,
  type Part,
  partValue,
  renderJson,
  renderText,
  type Template,
  TemplateError,
  type TemplateScope,
  type TemplateValues,
} from './placeholders.ts'

export interface OutboundRequest {
  method: string
  /** Scheme, host and port. */
  origin: string
  /** Path and query; starts with `/`. */
  path: string
  headers: Record<string, string>
  body: string | null
}

export interface RequestDefinition {
  method?: string | undefined
  url: string
  headers?: Record<string, string> | undefined
  body?: unknown
}

export interface RequestTemplate {
  /** What an item's input lacks for this request, whatever its key. */
  inputIssues(input: Json): InputIssue[]
  /** Why no URL can be made for the item, or null. */
  urlIssue(values: TemplateValues): InputIssue | null
  /** Throws when `urlIssue` has something to say: the item should have been refused at its submission. */
  render(values: TemplateValues): OutboundRequest
}

const PATH_LENGTH_MAX = 8_000
const BODY_DEPTH_MAX = 32
const HEADER_NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/
const HEADER_TEXT = /^[\x20-\x7e]*$/
/** The transport's own; set by hand they would break the framing of the request. */
const HEADERS_RESERVED = new Set(
  'connection content-length expect host keep-alive proxy-connection te trailer transfer-encoding upgrade'.split(' '),
)

/** `field` is the path of the request in its definition, for messages. */
export const compileRequest = (
  definition: RequestDefinition,
  scope: TemplateScope,
  field: string,
  methodDefault: 'POST' | 'GET',
): RequestTemplate => {
  const method = definition.method ?? methodDefault
  const url = compileUrl(compileAt(`${field}.url`, definition.url, scope), `${field}.url`)
  const headers = compileHeaders(definition.headers ?? {}, scope, `${field}.headers`)
  if (method === 'GET' && definition.body !== undefined) {
    throw new DefinitionError(`${field}.body`, 'a GET request has no body')
  }
  const body = definition.body === undefined ? null : compileBody(definition.body, scope, `${field}.body`, 0)
  if (body !== null && !headers.some(([name]) => name === 'content-type')) {
    headers.push(['content-type', [{ kind: 'text', text: 'application/json', origin: 'literal' }]])
  }
  return {
    inputIssues: (input) => [
      ...url.path.flatMap((part) => textIssue(part, input, true)),
      ...headers.flatMap(([, value]) => value.flatMap((part) => textIssue(part, input, false))),
    ],
    urlIssue: (values) => {
      const rendered = renderPath(url.path, values)
      return 'issue' in rendered ? rendered.issue : null
    },
    render: (values) => {
      const rendered = renderPath(url.path, values)
      if ('issue' in rendered) throw new Error(`no URL can be made: ${rendered.issue.detail}`)
      const json = body?.(values)
      return {
        method,
        origin: url.origin,
        path: rendered.path,
        headers: renderHeaders(headers, values),
        body: json === undefined ? null : JSON.stringify(json),
      }
    },
  }
}

/** Compiles one string; a fault names the field it stands in. */
export const compileAt = (field: string, text: string, scope: TemplateScope): Template => {
  try {
    return compileTemplate(text, scope)
  } catch (error) {
    if (error instanceof TemplateError) throw new DefinitionError(field, error.message, { cause: error })
    throw error
  }
}

/** An input member used in a URL or header: missing (where that matters) or without a plain textual form. */
const textIssue = (part: Part, input: Json, isRequired: boolean): InputIssue[] => {
  if (part.kind !== 'input') return []
  const value = partValue(part, { input, itemKey: '', effectKey: null, operationId: '' })
  if (value === undefined) {
    return isRequired ? [{ pointer: part.pointer, detail: 'is required: it is part of the request URL' }] : []
  }
  return value === null || typeof value === 'object'
    ? [{ pointer: part.pointer, detail: 'must be a string, number or boolean: it is part of a URL or header' }]
    : []
}

const compileUrl = (template: Template, field: string): { origin: string; path: Template } => {
  // A leading {env.X} is an origin, perhaps with a path, and stands as it is; every other value is encoded.
  const parts = template.map((part, index): Part => {
    if (part.kind !== 'text' || part.origin === 'literal') return part
    const isOrigin = index === 0 && part.origin === 'env'
    return { ...part, text: isOrigin ? part.text.replace(/\/+$/, '') : encodeUrlValue(part.text) }
  })
  const dynamicAt = parts.findIndex((part) => part.kind !== 'text')
  const fixed = parts
    .slice(0, dynamicAt === -1 ? undefined : dynamicAt)
    .map((part) => (part.kind === 'text' ? part.text : ''))
  const prefix = fixed.join('')
  const authority = /^https?:\/\/[^/?#]+/i.exec(prefix)?.[0]
  const isFixed = authority !== undefined && (dynamicAt === -1 || prefix.length > authority.length)
  if (!isFixed || !URL.canParse(authority)) {
    throw new DefinitionError(field, 'must start with a fixed http:// or https:// origin, followed by a path')
  }
  const { origin, username, password } = new URL(authority)
  if (username !== '' || password !== '') throw new DefinitionError(field, 'credentials belong in a header')
  const rest = prefix.slice(authority.length)
  const start: Part = { kind: 'text', text: rest.startsWith('/') ? rest : `/${rest}`, origin: 'literal' }
  const path = [start, ...(dynamicAt === -1 ? [] : parts.slice(dynamicAt))]
  for (const part of path) {
    if (part.kind === 'text' && !/^[\x21-\x22\x24-\x7e]*$/.test(part.text)) {
      throw new DefinitionError(field, 'must be visible ASCII without "#"; percent-encode other characters')
    }
  }
  return { origin, path }
}

/**
 * Dot segments are refused, also when they come together from several values: servers resolve them, and the request
 * would reach another resource. An empty value in the path does the same (`/grants/` instead of `/grants/7`).
 */
const renderPath = (template: Template, values: TemplateValues): { path: string } | { issue: InputIssue } => {
  let path = ''
  for (const part of template) {
    const rendered = renderText([part], values, encodeUrlValue)
    const pointer = part.kind === 'input' ? part.pointer : ''
    const name = describePart(part)
    if ('misfit' in rendered) {
      return {
        issue: { pointer, detail: `${name} ${rendered.missing ? 'is required' : 'has no textual form'} in a URL` },
      }
    }
    if (rendered.text === '' && part.kind !== 'text' && !path.includes('?')) {
      return { issue: { pointer, detail: `${name} must not be empty: it is part of the path of a URL` } }
    }
    path += rendered.text
  }
  if (path.length > PATH_LENGTH_MAX) {
    return { issue: { pointer: '', detail: `makes a URL of more than ${PATH_LENGTH_MAX} characters` } }
  }
  const [beforeQuery = ''] = path.split('?', 1)
  if (beforeQuery.split('/').some((segment) => /^(?:\.|%2e){1,2}$/i.test(segment))) {
    return { issue: { pointer: '', detail: 'makes "." or ".." a path segment of the request URL' } }
  }
  return { path }
}

const compileHeaders = (headers: Record<string, string>, scope: TemplateScope, field: string): [string, Template][] => {
  const names = new Set<string>()
  return Object.entries(headers).map(([name, text]) => {
    const at = `${field}.${name}`
    const lower = name.toLowerCase()
    if (!HEADER_NAME.test(name)) throw new DefinitionError(at, 'is not a header name')
    if (HEADERS_RESERVED.has(lower)) throw new DefinitionError(at, 'is set by the transport')
    if (names.has(lower)) throw new DefinitionError(at, 'is given twice')
    names.add(lower)
    const template = compileAt(at, text, scope)
    for (const part of template) {
      if (part.kind === 'text' && !HEADER_TEXT.test(part.text)) {
        const source = part.origin === 'literal' ? 'the text' : `the value of {${part.origin}.…}`
        throw new DefinitionError(at, `${source} must be visible ASCII without line breaks`)
      }
    }
    return [lower, template]
  })
}

const renderHeaders = (headers: [string, Template][], values: TemplateValues): Record<string, string> => {
  const rendered: Record<string, string> = {}
  for (const [name, template] of headers) {
    const value = renderText(template, values, encodeHeaderValue)
    if ('text' in value) rendered[name] = value.text
  }
  return rendered
}

type BodyTemplate = (values: TemplateValues) => Json | undefined

const compileBody = (body: unknown, scope: TemplateScope, field: string, depth: number): BodyTemplate => {
  if (depth > BODY_DEPTH_MAX) throw new DefinitionError(field, `deeper than ${BODY_DEPTH_MAX} levels`)
  if (typeof body === 'string') {
    const template = compileAt(field, body, scope)
    return (values) => renderJson(template, values)
  }
  if (Array.isArray(body)) {
    const elements = body.map((element, index) => compileBody(element, scope, `${field}.${index}`, depth + 1))
    return (values) => elements.map((element) => element(values)).filter((element) => element !== undefined)
  }
  if (typeof body === 'object' && body !== null) {
    const members = Object.entries(body).map(([name, value]) => {
      if (/\{[^{}]*\}/.test(name)) throw new DefinitionError(`${field}.${name}`, 'placeholders stand in values only')
      return [name, compileBody(value, scope, `${field}.${name}`, depth + 1)] as const
    })
    return (values) => {
      const object: { [member: string]: Json } = {}
      for (const [name, member] of members) {
        const value = member(values)
        if (value !== undefined) object[name] = value
      }
      return object
    }
  }
  if (body === null || typeof body === 'number' || typeof body === 'boolean') return () => body
  throw new DefinitionError(field, 'is not a JSON value')
}
