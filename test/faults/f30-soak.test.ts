/** Long load, one fault each half minute, and nothing grows: heap, descriptors, handles, listeners; connections come and go within their pools. */
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import type { Random } from '../support/random.ts'
import { faultTest } from './harness/fault.ts'
import { FIGURES, type Figure, growthOf, type Sample } from './harness/growth.ts'
import { expectNoExits, startLoad, withServer, withStackOn } from './harness/load.ts'
import type { Member, MemberKind } from './harness/member.ts'
import type { PostgresServer } from './harness/postgres-server.ts'
import { LEASE_MS, type Stack } from './harness/stack.ts'

const MINUTES = Number(process.env.FAULT_SOAK_MINUTES ?? 20)
const FAULT_EVERY_MS = 30_000
const SAMPLE_EVERY_MS = 5_000
/** Before a sample nothing is broken for so long, so that what it counts is not a reconnect. */
const CALM_MS = 10_000
const AGENT = fileURLToPath(new URL('harness/soak-agent.mjs', import.meta.url))
const MIB = 1024 * 1024

/** What pools, with their defaults, and the two sessions of wake-ups may open: one sends, one listens. */
const CONNECTIONS_MAX: Record<MemberKind, number> = { api: 10 + 2, worker: 10 + 2 + 2 }
/** How much more of it there may be at the end of the second half than at its beginning. */
const GROWTH_MAX: Record<Figure, (mean: number) => number> = {
  heapBytes: (mean) => Math.max(3 * MIB, mean * 0.05),
  // timers and calls in the air come and go; one that is left behind by each fault is twenty in ten minutes
  handles: (mean) => Math.max(4, mean * 0.2),
  listeners: (mean) => Math.max(20, mean * 0.05),
  descriptors: () => 4,
}

const askMember = (member: Member, number: number): Promise<Pick<Sample, 'heapBytes' | 'handles' | 'listeners'>> =>
  new Promise((resolve) => {
    const listener = (message: unknown): void => {
      if (typeof message !== 'object' || message === null || !('soak' in message) || message.soak !== number) return
      member.child.off('message', listener)
      resolve(message as unknown as Sample)
    }
    member.child.on('message', listener)
    member.send({ soak: number })
  })

const sampleOf = async (member: Member, number: number, atMs: number): Promise<Sample> => ({
  atMs,
  ...(await askMember(member, number)),
  descriptors: readdirSync(`/proc/${member.pid}/fd`).length,
  connections: member.proxy.connections(),
})

/** None of them ends a process: what a process holds on to is counted over the whole time. */
const faultsOf = (server: PostgresServer, stack: Stack, random: Random): (() => Promise<unknown>)[] => {
  const members = (): Member[] => [...stack.apis, ...stack.workers].map(({ member }) => member)
  const any = (): Member => random.pick(members())
  return [
    async () => any().proxy.cut(),
    async () => {
      const { proxy } = any()
      proxy.pause()
      await sleep(LEASE_MS)
      proxy.resume()
    },
    () => server.terminateBackends(),
    () => server.restart('fast'),
    () => server.restart('immediate'),
    async () => {
      server.signalAll('SIGSTOP')
      await sleep(LEASE_MS)
      server.signalAll('SIGCONT')
    },
    () => any().freeze(3 * LEASE_MS),
    async () => {
      await stack.effects.setLookup('down')
      await sleep(LEASE_MS)
      await stack.effects.setLookup('up')
    },
  ]
}

faultTest(
  'F30',
  'a soak with one fault each 30 s: heap, descriptors, handles and listeners stay flat, connections within their pools, and the account is whole',
  { short: null, long: 1, timeoutMs: { long: (MINUTES + 30) * 60_000 } },
  (fault) =>
    fault.each(({ seed, random }) => {
      const launch = () => ({ nodeArguments: ['--expose-gc', '--import', AGENT] })
      return withServer({}, (server) =>
        withStackOn(server, { apis: 1, workers: 2, random, launch }, async (stack) => {
          const load = startLoad(stack, { name: `f30-${seed}`, types: ['fault-asked', 'fault-row'], everyMs: 200 })
          const samples = new Map<Member, Sample[]>()
          const startedAt = performance.now()
          const untilMs = MINUTES * 60_000
          const elapsedMs = (): number => performance.now() - startedAt
          for (let number = 0; elapsedMs() < untilMs; ) {
            await random.pick(faultsOf(server, stack, random))()
            const nextAt = elapsedMs() + FAULT_EVERY_MS
            await sleep(CALM_MS)
            while (elapsedMs() < nextAt) {
              for (const { member } of [...stack.apis, ...stack.workers]) {
                const own = samples.get(member) ?? []
                samples.set(member, own)
                own.push(await sampleOf(member, number++, elapsedMs()))
              }
              await sleep(SAMPLE_EVERY_MS)
            }
          }
          await load.stop()
          for (const [member, own] of samples) {
            const half = own.slice(Math.floor(own.length / 2))
            const grown = FIGURES.map((figure) => growthOf(half, figure))
            const connections = Math.max(...own.map((sample) => sample.connections))
            for (const figure of [...FIGURES, 'connections'] as const) {
              console.log(
                `F30 ${member.kind} ${member.pid} ${figure}: ${own.map((sample) => sample[figure]).join(' ')}`,
              )
            }
            console.log(
              `F30 ${member.kind} ${member.pid}: ${JSON.stringify(grown)}, at most ${connections} connections`,
            )
            expect(grown.filter(({ figure, mean, growth }) => growth > GROWTH_MAX[figure](mean))).toEqual([])
            expect(connections).toBeLessThanOrEqual(CONNECTIONS_MAX[member.kind])
          }
          await load.expectWhole()
          expectNoExits(stack)
        }),
      )
    }),
)
