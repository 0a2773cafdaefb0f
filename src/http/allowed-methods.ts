import type { FastifyInstance } from 'fastify'

/** Methods per registered path: Fastify answers 404 by itself where 405 with `Allow` is right. */
export class AllowedMethods {
  readonly #methodsByUrl = new Map<string, Set<string>>()

  /** Must be called before the first route is registered. */
  watch(app: FastifyInstance): void {
    app.addHook('onRoute', ({ url, method }) => {
      const methods = this.#methodsByUrl.get(url) ?? new Set()
      for (const each of [method].flat()) methods.add(each)
      this.#methodsByUrl.set(url, methods)
    })
  }

  /** The methods that some route has for this path, sorted; empty: no route has it. A fixed path wins over a pattern. */
  of(path: string): string[] {
    const methods = this.#methodsByUrl.get(path) ?? this.#matching(path)
    return [...methods].sort()
  }

  #matching(path: string): Set<string> {
    const methods = new Set<string>()
    for (const [url, own] of this.#methodsByUrl) if (matches(url, path)) for (const method of own) methods.add(method)
    return methods
  }
}

const matches = (pattern: string, path: string): boolean => {
  const wanted = pattern.split('/')
  const given = path.split('/')
  if (pattern.endsWith('*')) return path.startsWith(pattern.slice(0, -1))
  return (
    wanted.length === given.length &&
    wanted.every((step, i) => (step.startsWith(':') ? given[i] !== '' : step === given[i]))
  )
}
