/** What was opened is closed in the opposite order, each of it, also where an earlier one failed to. */
export interface Closers {
  add(close: () => unknown): void
  /** Throws the first error after everything was tried. */
  closeAll(): Promise<void>
}

export const openClosers = (): Closers => {
  const closers: (() => unknown)[] = []
  return {
    add: (close) => void closers.push(close),
    async closeAll() {
      const errors: unknown[] = []
      for (let close = closers.pop(); close; close = closers.pop()) {
        try {
          await close()
        } catch (error) {
          errors.push(error)
        }
      }
      if (errors.length > 0) throw errors[0]
    },
  }
}
