import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { statusName, type Tone, toneOf } from '../status.ts'

/** Told by shape and word, and by colour besides. */
const SIGNS: Readonly<Record<Tone, string>> = { neutral: '○', active: '◔', good: '✓', warning: '!', bad: '✕' }

export const Badge = ({ tone, children }: { tone: Tone; children: string }): JSX.Element => (
  <span class={`badge ${tone}`}>
    <span aria-hidden="true">{SIGNS[tone]}</span> {children}
  </span>
)

export const StatusBadge = ({ status }: { status: string }): JSX.Element => {
  const { t } = useApp()
  return <Badge tone={toneOf(status)}>{statusName(status, t)}</Badge>
}
