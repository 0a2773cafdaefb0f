/** What B3 and B4 have in common: opledger, a bare limit and every peer take turns, and are compared by their rates. */
import type { BenchContext, Chart, Outcome } from './bench.ts'
import { interleave, short } from './interleave.ts'
import type { Peers } from './peers.ts'
import { type Goal, judge, type Result, skipped } from './result.ts'
import { median, ratiosOf } from './statistics.ts'

export interface Comparison {
  id: string
  what: string
  opledger(): Promise<number>
  limit: { name: string; goal: Goal; run(): Promise<number> }
  peers: Peers
  peerGoal: Goal
  rounds: number
  chart: Omit<Chart, 'bars'>
}

export const compare = async ({ server, say }: BenchContext, comparison: Comparison): Promise<Outcome> => {
  const { id, what, limit, peers, peerGoal, rounds, chart } = comparison
  const rates = await interleave(
    {
      opledger: comparison.opledger,
      [limit.name]: limit.run,
      ...Object.fromEntries(peers.present.map((peer) => [peer.name, () => peer.run()])),
    },
    { rounds, settle: server.settle, say },
  )
  const of = (name: string): number[] => rates[name] ?? []
  const ours = of('opledger')
  const [best, ...others] = peers.present.map(({ name }) => name).sort((a, b) => median(of(b)) - median(of(a)))
  const told = (name: string): string => `${name} ${short(median(of(name)))}/s`
  const results: Result[] = [
    judge({
      id,
      what,
      against: limit.name,
      goal: limit.goal,
      ratios: ratiosOf(ours, of(limit.name)),
      absolute: `${told('opledger')}, ${told(limit.name)}`,
    }),
  ]
  if (best !== undefined) {
    results.push(
      judge({
        id,
        what,
        against: `${best}, the best peer`,
        goal: peerGoal,
        ratios: ratiosOf(ours, of(best)),
        absolute: [told('opledger'), told(best)].join(', '),
        ...(others.length > 0 && { note: `the others: ${others.map(told).join(', ')}` }),
      }),
    )
  }
  for (const { name, reason } of peers.absent)
    results.push(skipped({ id, what, against: name, goal: peerGoal, reason }))
  return {
    results,
    chart: {
      ...chart,
      bars: [
        { label: 'opledger', value: median(ours), kind: 'opledger' },
        { label: limit.name, value: median(of(limit.name)), kind: 'limit' },
        ...[best, ...others]
          .filter((name) => name !== undefined)
          .map((name) => ({ label: name, value: median(of(name)), kind: 'peer' as const })),
      ],
    },
  }
}
