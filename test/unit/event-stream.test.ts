import type { Readable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { AppError } from '../../src/domain/errors.ts'
import type { OperationStatus } from '../../src/domain/operation.ts'
import { isAllTold, openEventStream } from '../../src/http/event-stream.ts'
import { MAX_STREAMS, MAX_WAITERS } from '../../src/http/limits.ts'
import { Waiters } from '../../src/http/waiters.ts'
import type { EventView, OperationView } from '../../src/services/views.ts'
import { DB_TIME, makeOperation } from '../http/fake-services.ts'

const principal = { tenantId: 1, name: 'dev', scopes: [] }
const KEEP_ALIVE_SECONDS = 15
const times = { keepAliveSeconds: KEEP_ALIVE_SECONDS, lookMs: 1_000, outageLookMs: 5_000, streamSeconds: 900 }

/** One operation, told by services whose every call can be made to fail. */
class Told {
  readonly operation: OperationView = makeOperation('running')
  readonly events: EventView[] = []
  readonly abort = new AbortController()
  reads = 0
  fault: Error | null = null
  #wake: () => void = () => {}

  add(version: number, kind: string, status: OperationStatus = 'running'): void {
    this.events.push({ version, kind, status, at: DB_TIME, actor: 'dev', reason: null })
  }

  change(status: OperationStatus = 'running'): void {
    this.operation.version += 1
    this.operation.status = status
    this.#wake()
  }

  open(afterVersion: number | null): { text: () => string; ended: Promise<void>; stream: Readable } {
    let text = ''
    const stream = openEventStream({
      principal,
      operationId: this.operation.id,
      afterVersion,
      services: this.services,
      signal: this.abort.signal,
      times,
    })
    stream.setEncoding('utf8')
    stream.on('data', (chunk: string) => {
      text += chunk
    })
    const ended = new Promise<void>((resolve, reject) => stream.once('end', resolve).once('error', reject))
    return { text: () => text, ended, stream }
  }

  readonly services = {
    getOperation: async () => {
      this.reads++
      if (this.fault) throw this.fault
      return { ...this.operation }
    },
    listEvents: async (
      _principal: unknown,
      _id: string,
      page: { limit: number; position: { version: number } | null },
    ) => {
      const items = this.events.filter(({ version }) => version > (page.position?.version ?? -1))
      return { items: items.slice(0, page.limit), next: null }
    },
    waitForChange: (
      _principal: unknown,
      _id: string,
      request: { seconds: number; seenVersion: number | null; signal: AbortSignal },
    ) =>
      new Promise<OperationView>((resolve) => {
        const done = () => {
          clearTimeout(timer)
          resolve(this.operation)
        }
        const timer = setTimeout(done, request.seconds * 1_000)
        this.#wake = done
        request.signal.addEventListener('abort', done)
        if (this.operation.version !== request.seenVersion) done()
      }),
  }
}

const idsOf = (text: string): string[] => [...text.matchAll(/^id: (\d+)$/gm)].map((match) => String(match[1]))
const framesOf = (text: string, start: string): string[] =>
  text.split('\n\n').filter((frame) => frame.startsWith(start))

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

describe('an event stream', () => {
  it('resumes behind the last event that was seen, tells how it stands, and ends after the final state', async () => {
    const told = new Told()
    for (const version of [1, 2, 3]) told.add(version, 'moved')
    const { text, ended } = told.open(1)
    await vi.advanceTimersByTimeAsync(10)
    expect(idsOf(text())).toEqual(['2', '3'])
    const progress = framesOf(text(), 'event: progress')
    expect(progress).toHaveLength(1)
    // a progress frame has no id, so it never moves the place to resume at
    expect(progress[0]).not.toContain('id:')
    expect(JSON.parse(String(progress[0]?.split('data: ')[1]))).toMatchObject({
      status: 'running',
      counts: { total: 10 },
    })
    told.add(4, 'settled', 'succeeded')
    told.change('succeeded')
    await vi.advanceTimersByTimeAsync(times.lookMs)
    await ended
    expect(idsOf(text())).toEqual(['2', '3', '4'])
    expect(framesOf(text(), 'event: progress').at(-1)).toContain('"status":"succeeded"')
  })

  it('says something before a proxy would end it, when nothing happens', async () => {
    const told = new Told()
    const { text, stream } = told.open(null)
    await vi.advanceTimersByTimeAsync(3 * (KEEP_ALIVE_SECONDS + 1) * 1_000 + 100)
    expect(framesOf(text(), ': keep-alive')).toHaveLength(3)
    stream.destroy()
  })

  it('looks once a second at what changes all the time, and tells the progress each time', async () => {
    const told = new Told()
    const { text, stream } = told.open(null)
    for (let ms = 0; ms < 10_000; ms += 20) {
      told.change()
      await vi.advanceTimersByTimeAsync(20)
    }
    expect(told.reads).toBeLessThanOrEqual(11)
    expect(framesOf(text(), 'event: progress').length).toBeGreaterThanOrEqual(9)
    stream.destroy()
  })

  it('outlives a database that is away: a browser that is answered 503 would never come back', async () => {
    const told = new Told()
    told.add(1, 'submitted')
    const { text, ended } = told.open(null)
    await vi.advanceTimersByTimeAsync(10)
    told.fault = new AppError('database-unavailable', 'it is away')
    told.change()
    await vi.advanceTimersByTimeAsync(12_000)
    expect(framesOf(text(), ': keep-alive').length).toBeGreaterThanOrEqual(2)
    told.fault = null
    told.add(2, 'settled', 'failed')
    told.change('failed')
    await vi.advanceTimersByTimeAsync(5_000)
    await ended
    expect(idsOf(text())).toEqual(['1', '2'])
  })

  it('breaks off, and is never ended as if it were complete, at a fault that will not pass', async () => {
    const told = new Told()
    told.fault = new Error('a bug')
    const { ended } = told.open(null)
    const failed = expect(ended).rejects.toThrow('a bug')
    await vi.advanceTimersByTimeAsync(10)
    await failed
  })

  it('ends after its time, so that the key of its client is looked at again', async () => {
    const told = new Told()
    const { ended } = told.open(null)
    await vi.advanceTimersByTimeAsync((times.streamSeconds + KEEP_ALIVE_SECONDS + 2) * 1_000)
    await ended
  })

  it('ends at once when its client is gone or the server closes', async () => {
    const told = new Told()
    const { ended } = told.open(null)
    await vi.advanceTimersByTimeAsync(3_000)
    told.abort.abort()
    await vi.advanceTimersByTimeAsync(0)
    await ended
  })

  it('has told all when the operation is final and nothing came after the last event seen', async () => {
    const told = new Told()
    told.add(1, 'submitted')
    told.add(2, 'settled', 'succeeded')
    const wanted = { principal, operationId: told.operation.id, services: told.services }
    const running = makeOperation('running')
    const final = makeOperation('succeeded')
    expect(await isAllTold({ ...wanted, afterVersion: 2 }, running)).toBe(false)
    expect(await isAllTold({ ...wanted, afterVersion: null }, final)).toBe(false)
    expect(await isAllTold({ ...wanted, afterVersion: 1 }, final)).toBe(false)
    expect(await isAllTold({ ...wanted, afterVersion: 2 }, final)).toBe(true)
  })
})

describe('waiters', () => {
  it('keep places for long polls when all that streams may have is taken', () => {
    const waiters = new Waiters()
    const streams = Array.from({ length: MAX_STREAMS }, () => waiters.enter('stream'))
    expect(() => waiters.enter('stream')).toThrow(/event streams are open/)
    const polls = Array.from({ length: MAX_WAITERS - MAX_STREAMS }, () => waiters.enter('poll'))
    expect(waiters.isFull).toBe(true)
    expect(() => waiters.enter('poll')).toThrow(/are waiting already/)
    // given back twice, a place is free once
    for (const place of streams.slice(0, 2)) waiters.leave(place)
    waiters.leave(streams[0] as AbortController)
    waiters.enter('stream')
    waiters.enter('stream')
    expect(() => waiters.enter('stream')).toThrow()
    expect(polls.every(({ signal }) => !signal.aborted)).toBe(true)
  })

  it('end all of them, and whoever comes while the server closes', () => {
    const waiters = new Waiters()
    const before = waiters.enter('stream')
    waiters.endAll()
    expect(before.signal.aborted).toBe(true)
    expect(waiters.enter('poll').signal.aborted).toBe(true)
  })
})
