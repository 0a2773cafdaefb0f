/** Tells what a process holds on to for good from what comes and goes with its connections to the database. */

/** What one process held at one time. */
export interface Sample {
  atMs: number
  heapBytes: number
  handles: number
  listeners: number
  descriptors: number
  /** To the database. Each has a socket, listeners and buffers, and a pool opens them one by one, as they are needed. */
  connections: number
}

export const FIGURES = ['heapBytes', 'handles', 'listeners', 'descriptors'] as const
export type Figure = (typeof FIGURES)[number]

export interface Growth {
  figure: Figure
  mean: number
  /** From the first sample to the last one, by the fitted line. */
  growth: number
}

const sumOver = (samples: readonly Sample[], of: (sample: Sample) => number): number =>
  samples.reduce((sum, sample) => sum + of(sample), 0)

/**
 * Least squares over time and connections, so that a pool which is filled little by little explains what it needs, and only
 * that. Where the number of connections stays the same it is the line over time.
 */
export const growthOf = (samples: readonly Sample[], figure: Figure): Growth => {
  const meanOf = (of: (sample: Sample) => number): number => sumOver(samples, of) / samples.length
  const [meanAt, meanConnections, mean] = [
    meanOf((sample) => sample.atMs),
    meanOf((sample) => sample.connections),
    meanOf((sample) => sample[figure]),
  ]
  const time = (sample: Sample): number => sample.atMs - meanAt
  const connections = (sample: Sample): number => sample.connections - meanConnections
  const value = (sample: Sample): number => sample[figure] - mean
  const sumOfProducts = (a: (sample: Sample) => number, b: (sample: Sample) => number): number =>
    sumOver(samples, (sample) => a(sample) * b(sample))
  const [timeTime, timeConnections, both] = [
    sumOfProducts(time, time),
    sumOfProducts(time, connections),
    sumOfProducts(connections, connections),
  ]
  const [timeValue, connectionsValue] = [sumOfProducts(time, value), sumOfProducts(connections, value)]
  const determinant = timeTime * both - timeConnections ** 2
  const perMs =
    both === 0 ? timeValue / timeTime : (timeValue * both - connectionsValue * timeConnections) / determinant
  return { figure, mean, growth: perMs * ((samples.at(-1)?.atMs ?? 0) - (samples[0]?.atMs ?? 0)) }
}
