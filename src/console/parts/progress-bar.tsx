import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { formatShare } from '../format.ts'

/** @param ratio 0…1; null: there is nothing to do, or nobody knows how much */
export const ProgressBar = ({ ratio, label }: { ratio: number | null; label: string }): JSX.Element => {
  const { language, t } = useApp()
  const text = ratio === null ? t.none : formatShare(ratio, language)
  return (
    <span class="progress">
      <span
        class="progress-track"
        role="progressbar"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        {...(ratio === null ? {} : { 'aria-valuenow': Math.floor(ratio * 100) })}
        aria-valuetext={text}
      >
        <span class="progress-fill" style={{ width: `${(ratio ?? 0) * 100}%` }} />
      </span>
      <span class="progress-text">{text}</span>
    </span>
  )
}
