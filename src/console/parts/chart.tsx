import 'uplot/dist/uPlot.min.css'
import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'

interface ChartProps {
  /** What it shows; read to those who cannot see it. */
  label: string
  /** Seconds since 1970, ascending, and the value of each. */
  times: readonly number[]
  values: readonly number[]
  kind: 'line' | 'bars'
}

const HEIGHT = 140
const AXIS_FONT = '12px system-ui, sans-serif'

/** A canvas does not follow the style sheet: its colours are read from it. */
const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

const draw = (place: HTMLElement, { label, kind }: ChartProps, data: uPlot.AlignedData): uPlot => {
  const axis = { stroke: colour('--muted'), grid: { stroke: colour('--line') }, font: AXIS_FONT }
  const bars = uPlot.paths.bars?.({ size: [0.8, 40] })
  return new uPlot(
    {
      width: place.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_chart, _low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [axis, { ...axis, size: 60 }],
      series: [
        {},
        {
          label,
          stroke: colour('--accent'),
          width: 2,
          points: { show: false },
          ...(kind === 'bars' && bars !== undefined ? { paths: bars, fill: colour('--accent') } : {}),
        },
      ],
    },
    data,
    place,
  )
}

export const Chart = (props: ChartProps): JSX.Element => {
  const place = useRef<HTMLDivElement>(null)
  const chart = useRef<uPlot | null>(null)
  const latest = useRef(props)
  latest.current = props
  const dataOf = ({ times, values }: ChartProps): uPlot.AlignedData => [[...times], [...values]]

  useEffect(() => {
    const element = place.current
    if (element === null) return
    const redraw = (): void => {
      chart.current?.destroy()
      chart.current = draw(element, latest.current, dataOf(latest.current))
    }
    redraw()
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    const sizes = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height: HEIGHT }))
    scheme.addEventListener('change', redraw)
    sizes.observe(element)
    return () => {
      scheme.removeEventListener('change', redraw)
      sizes.disconnect()
      chart.current?.destroy()
      chart.current = null
    }
  }, [])
  useEffect(() => chart.current?.setData(dataOf(props)), [props.times, props.values])

  return <div ref={place} class="chart" role="img" aria-label={props.label} />
}
