import type { GetAnswer, GetOptions, GetPath, PostAnswer, PostOptions, PostPath } from './contract.ts'
import { readProblem, unreachable } from './problem.ts'

/** Who asks: with AUTH=keys the key says it; with AUTH=off the name is taken as it is. */
export interface Caller {
  key: string | null
  name: string | null
}

export interface ClientOptions {
  fetch: typeof fetch
  caller: () => Caller
  /** The service wants a key, or another one. */
  onUnauthenticated: () => void
}

/** No read of ours waits longer in the service; a proxy that swallows one must not hold a page for ever. */
const REQUEST_MS = 30_000
/** Answers that are remembered with their ETag, so that asking again costs a 304. */
const REMEMBERED_MAX = 32

interface Remembered {
  etag: string
  body: unknown
}

/** The API as the OpenAPI document describes it. Every refusal, and every failure to get an answer, is a `Problem`. */
export class ApiClient {
  readonly #options: ClientOptions
  readonly #remembered = new Map<string, Remembered>()

  constructor(options: ClientOptions) {
    this.#options = options
  }

  /** What one caller was answered is not for the next. */
  forget(): void {
    this.#remembered.clear()
  }

  /** @returns the same object as before while the resource has not changed */
  async get<P extends GetPath>(
    path: P,
    { path: parameters, query, signal }: GetOptions<P> = {},
  ): Promise<GetAnswer<P>> {
    const url = urlOf(path, parameters, query)
    const remembered = this.#remembered.get(url)
    const headers: Record<string, string> = { accept: 'application/json' }
    if (remembered !== undefined) headers['if-none-match'] = remembered.etag
    const response = await this.#send(url, { headers }, signal)
    if (response.status === 304 && remembered !== undefined) return remembered.body as GetAnswer<P>
    const body = await readJson(response)
    this.#remember(url, response.headers.get('etag'), body)
    return body as GetAnswer<P>
  }

  async post<P extends PostPath>(path: P, { path: parameters, body }: PostOptions<P> = {}): Promise<PostAnswer<P>> {
    const headers = { accept: 'application/json', 'content-type': 'application/json' }
    const response = await this.#send(urlOf(path, parameters), {
      method: 'POST',
      headers,
      body: JSON.stringify(body ?? {}),
    })
    return (await readJson(response)) as PostAnswer<P>
  }

  /** The answer in another form, as it comes: a download or a stream of events. It has no deadline; end it by `signal`. */
  async open<P extends GetPath>(
    path: P,
    options: GetOptions<P> & { accept: string; headers?: Record<string, string> },
  ): Promise<Response> {
    const url = urlOf(path, options.path, options.query)
    return this.#send(url, { headers: { ...options.headers, accept: options.accept } }, options.signal, null)
  }

  #remember(url: string, etag: string | null, body: unknown): void {
    this.#remembered.delete(url)
    if (etag === null) return
    const [oldest] = this.#remembered.keys()
    if (this.#remembered.size >= REMEMBERED_MAX && oldest !== undefined) this.#remembered.delete(oldest)
    this.#remembered.set(url, { etag, body })
  }

  async #send(
    url: string,
    init: { method?: string; headers: Record<string, string>; body?: string },
    signal?: AbortSignal,
    deadlineMs: number | null = REQUEST_MS,
  ): Promise<Response> {
    const signals = [signal, deadlineMs === null ? undefined : AbortSignal.timeout(deadlineMs)]
    const headers = { ...init.headers, ...callerHeaders(this.#options.caller()) }
    let response: Response
    try {
      response = await this.#options.fetch(url, {
        ...init,
        headers,
        signal: AbortSignal.any(signals.filter((one) => one !== undefined)),
      })
    } catch (cause) {
      if (signal?.aborted) throw cause
      throw unreachable(cause instanceof Error ? cause.message : String(cause), cause)
    }
    if (response.ok || response.status === 304) return response
    if (response.status === 401) this.#options.onUnauthenticated()
    throw await readProblem(response)
  }
}

const readJson = async (response: Response): Promise<unknown> => {
  try {
    return await response.json()
  } catch (cause) {
    throw unreachable('The answer is not JSON', cause)
  }
}

/** Header values are bytes: a name goes out as its UTF-8, which is how the service reads it. */
const callerHeaders = ({ key, name }: Caller): Record<string, string> => {
  if (key !== null) return { authorization: `Bearer ${key}` }
  return name === null ? {} : { 'x-principal': String.fromCharCode(...new TextEncoder().encode(name)) }
}

/** Absolute on our own origin, so that it holds on every page. Parameters that are undefined or empty are left out. */
export const urlOf = (path: string, parameters: object = {}, query: object = {}): string => {
  const values = new Map(Object.entries(parameters))
  const filled = path.replace(/\{(\w+)\}/g, (_match, name: string) => encodeURIComponent(String(values.get(name))))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== '') search.append(name, String(value))
  return search.size === 0 ? filled : `${filled}?${search}`
}
