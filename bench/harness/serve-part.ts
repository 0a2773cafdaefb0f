/** The inside of a part (part.ts): reads its settings, opens, says that it is ready, and answers calls. */
import type { PartMessage } from './part.ts'

export interface ServedPart {
  /** Told to whoever started it, such as a port. */
  ready?: unknown
  calls?: Record<string, (argument: never) => unknown>
  close?(): unknown
}

interface Call {
  id: number
  name: string
  argument: unknown
}

export const servePart = async <Settings>(open: (settings: Settings) => Promise<ServedPart>): Promise<void> => {
  const tell = (message: PartMessage): void => void process.send?.(message)
  const part = await open(JSON.parse(process.argv[2] ?? 'null') as Settings)
  let leaving = false
  const leave = async (): Promise<void> => {
    if (leaving) return
    leaving = true
    await part.close?.()
    process.exit(0)
  }
  process.on('SIGTERM', () => void leave())
  process.on('disconnect', () => void leave())
  process.on('message', ({ id, name, argument }: Call) => {
    const call = part.calls?.[name]
    Promise.resolve()
      .then(() => {
        if (call === undefined) throw new Error(`there is no call ${name}`)
        return call(argument as never)
      })
      .then(
        (value) => tell({ kind: 'answer', id, value: value ?? null }),
        (error: unknown) =>
          tell({ kind: 'failed', id, text: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
      )
  })
  tell({ kind: 'ready', value: part.ready ?? null })
}
