import type { FastifyBaseLogger } from 'fastify'

type Level = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace'
type Line = Parameters<FastifyBaseLogger['info']>

/**
 * The log of one request. Its lines name the request; the child of the log that does so is made with the first line, as most
 * requests write none, and making it costs as much as the rest of a small answer.
 */
export class RequestLog {
  readonly #parent: FastifyBaseLogger
  readonly #bindings: Record<string, unknown>
  #own: FastifyBaseLogger | null = null

  constructor(parent: FastifyBaseLogger, bindings: Record<string, unknown>) {
    this.#parent = parent
    this.#bindings = bindings
  }

  get level(): string {
    return this.#parent.level
  }

  fatal(...line: Line): void {
    this.#write('fatal', line)
  }
  error(...line: Line): void {
    this.#write('error', line)
  }
  warn(...line: Line): void {
    this.#write('warn', line)
  }
  info(...line: Line): void {
    this.#write('info', line)
  }
  debug(...line: Line): void {
    this.#write('debug', line)
  }
  trace(...line: Line): void {
    this.#write('trace', line)
  }
  silent(): void {}

  child(...more: Parameters<FastifyBaseLogger['child']>): FastifyBaseLogger {
    return this.#log().child(...more)
  }

  #write(level: Level, line: Line): void {
    this.#log()[level](...line)
  }

  #log(): FastifyBaseLogger {
    this.#own ??= this.#parent.child(this.#bindings)
    return this.#own
  }
}
