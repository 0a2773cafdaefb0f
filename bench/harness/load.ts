import type { Closers } from './closers.ts'
import { startPart } from './part.ts'

export interface LoadRequest {
  method: 'GET' | 'POST'
  path: string
  headers?: Record<string, string>
  body?: string
}

/** What load/http-load.ts is told. */
export interface LoadSettings {
  url: string
  connections: number
  seconds: number
  /** What every answer has to be; another one fails the load. */
  status: number
  /** Dealt out to the connections; each sends its own in turn, again and again. */
  requests: LoadRequest[]
}

/** Connections of B1, B2 and B7. */
export const CONNECTIONS = 50

/** What load/http-load.ts answers. */
export interface LoadResult {
  /** Answers a second. */
  rate: number
  /** Of one core, by the load itself: near 1, the load is what was measured. */
  cpu: number
}

export interface Load {
  /** Answers a second. */
  run(settings: Omit<LoadSettings, 'connections'>): Promise<number>
  /** How much of a core the load took, at most over its runs: whoever reads a rate has to know. */
  describe(): string
}

export const startLoad = async (closers: Closers): Promise<Load> => {
  const part = await startPart(closers, 'load/http-load.ts', null)
  let most = 0
  return {
    async run(settings) {
      const { rate, cpu } = await part.call<LoadResult>('run', { ...settings, connections: CONNECTIONS })
      most = Math.max(most, cpu)
      return rate
    },
    describe: () => `the load took up to ${Math.round(most * 100)} % of a core`,
  }
}

/** One item that changes nothing, as it is only accepted here. */
export const SUBMISSION: LoadRequest = {
  method: 'POST',
  path: '/operations',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({
    type: 'bench-update',
    items: [{ key: 'target-1', input: { target: 1 } }],
  }),
}
