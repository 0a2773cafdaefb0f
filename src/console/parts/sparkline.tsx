import type { JSX } from 'preact'
import type { Sample } from '../live/trend.ts'

const WIDTH = 80
const HEIGHT = 20

/** A line without axes, beside the figure that it leads to; `label` says what a look at it would. */
export const Sparkline = ({ samples, label }: { samples: readonly Sample[]; label: string }): JSX.Element | null => {
  const first = samples[0]
  const last = samples.at(-1)
  if (first === undefined || last === undefined || samples.length < 2) return null
  const values = samples.map(([, value]) => value)
  const [low, high] = [Math.min(...values), Math.max(...values)]
  const span = last[0] - first[0] || 1
  const points = samples.map(([at, value]) => {
    const x = ((at - first[0]) / span) * WIDTH
    const y = high === low ? HEIGHT / 2 : HEIGHT - 2 - ((value - low) / (high - low)) * (HEIGHT - 4)
    return `${x.toFixed(1)},${y.toFixed(1)}`
  })
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={WIDTH}
      height={HEIGHT}
      role="img"
      aria-label={label}
    >
      <polyline points={points.join(' ')} fill="none" stroke="currentColor" stroke-width="1.5" />
    </svg>
  )
}
