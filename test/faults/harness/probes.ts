/**
 * The suite's side of the probe points. A point is armed in every process; the first process that stands there for a subject
 * that matches is held, and told what becomes of it. All others go on at once.
 */
import type { ProbePoint, ProbeSubject } from '../../../src/probe.ts'
import type { Member } from './member.ts'

/** What a process that stands at a point is made to do. */
export type FaultAction =
  /** SIGKILL, there. */
  | { kind: 'kill' }
  /** SIGSTOP, there, and SIGCONT after so long. */
  | { kind: 'freeze'; ms: number }
  /** SIGSTOP, there, and SIGCONT when this resolves. */
  | { kind: 'freeze-until'; thaw: () => Promise<unknown> }
  /** All its connections to the database are cut, then it goes on. */
  | { kind: 'cut' }
  /** The point throws. */
  | { kind: 'throw' }
  /** It is held until this resolves, while the rest of the process goes on. */
  | { kind: 'hold'; until: () => Promise<unknown> }

export interface Trap {
  point: ProbePoint
  /** May wait, such as for the id of an operation that is just being submitted. */
  matches: (subject: ProbeSubject, member: Member) => boolean | Promise<boolean>
  action: FaultAction
  /** Before the action, such as until the effect server has seen the call. */
  first?: (hit: Hit) => Promise<unknown>
}

export interface Hit {
  member: Member
  subject: ProbeSubject
}

interface Message {
  at: number
  point: ProbePoint
  subject: ProbeSubject
}
const isHit = (message: unknown): message is Message =>
  typeof message === 'object' && message !== null && 'at' in message && 'point' in message

export interface Probes {
  /** Sets a trap in every process that runs or is started later; `hit` resolves when it has sprung and the action was done. */
  arm(trap: Trap): Promise<{ hit: Promise<Hit>; disarm(): Promise<void> }>
  /** Called by the stack for each process that it starts. */
  watch(member: Member): Promise<void>
}

export const openProbes = (): Probes => {
  const traps = new Set<{ trap: Trap; spring: (hit: Hit) => void }>()
  const members = new Set<Member>()

  const tell = async (member: Member): Promise<void> => {
    const points = [...new Set([...traps].map(({ trap }) => trap.point))]
    await member.ask({ armed: points })
  }
  const tellAll = async (): Promise<void> => {
    await Promise.all([...members].map(tell))
  }

  const meet = async (member: Member, { at, point, subject }: Message): Promise<void> => {
    const go = (then: 'go' | 'throw'): void => member.send({ at, then })
    for (const set of traps) {
      const { trap } = set
      if (trap.point !== point || !(await trap.matches(subject, member)) || !traps.delete(set)) continue
      const hit = { member, subject }
      await trap.first?.(hit)
      switch (trap.action.kind) {
        case 'kill':
          await member.kill()
          return set.spring(hit)
        case 'freeze':
          void member.freeze(trap.action.ms)
          go('go') // waits in the channel until the process moves again
          return set.spring(hit)
        case 'freeze-until':
          void member.freeze(trap.action.thaw())
          go('go')
          return set.spring(hit)
        case 'cut':
          member.proxy.cut()
          go('go')
          return set.spring(hit)
        case 'throw':
          go('throw')
          return set.spring(hit)
        case 'hold':
          set.spring(hit)
          await trap.action.until()
          return go('go')
      }
    }
    go('go')
  }

  return {
    async arm(trap) {
      let spring: (hit: Hit) => void = () => {}
      const hit = new Promise<Hit>((resolve) => {
        spring = resolve
      })
      const set = { trap, spring }
      traps.add(set)
      await tellAll()
      return {
        hit,
        async disarm() {
          if (traps.delete(set)) await tellAll()
        },
      }
    },
    async watch(member) {
      member.onMessage((message) => {
        if (isHit(message)) void meet(member, message)
      })
      members.add(member)
      member.onExit(() => members.delete(member))
      await tell(member)
    },
  }
}
