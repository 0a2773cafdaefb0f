import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { formatRelative, formatTime } from '../format.ts'
import { useNow } from '../live/use-now.ts'

/** How long ago or ahead; the exact time on request. */
export const Age = ({ at }: { at: string | null }): JSX.Element => {
  const { language, t } = useApp()
  const nowMs = useNow()
  if (at === null) return <>{t.none}</>
  return (
    <time dateTime={at} title={formatTime(at, language)}>
      {formatRelative(at, nowMs, language)}
    </time>
  )
}

/** The exact time, and how long ago. */
export const Moment = ({ at }: { at: string | null }): JSX.Element => {
  const { language, t } = useApp()
  if (at === null) return <>{t.none}</>
  return (
    <span>
      {formatTime(at, language)}{' '}
      <span class="muted">
        (<Age at={at} />)
      </span>
    </span>
  )
}
