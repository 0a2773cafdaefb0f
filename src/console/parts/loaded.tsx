import type { ComponentChildren, JSX } from 'preact'
import { useApp } from '../app-context.ts'
import type { Read } from '../live/use-read.ts'
import { ProblemBox } from './problem-box.tsx'

/** What was read, or why not (yet). */
export const Loaded = <T,>({
  read,
  children,
}: {
  read: Read<T>
  children: (data: T) => ComponentChildren
}): JSX.Element => {
  const { t } = useApp()
  const { data, problem } = read
  return (
    <>
      {problem !== null && <ProblemBox problem={problem} isStale={data !== null} />}
      {data === null && problem === null && <p class="muted">{t.loading}</p>}
      {data !== null && children(data)}
    </>
  )
}
