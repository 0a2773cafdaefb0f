import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  cancel,
  describe as describeOperation,
  follow,
  isFinal,
  mount,
  type ShownOperation,
} from '../../examples/cancel-button/cancel-button.js'
import { FINAL_STATUSES, OPERATION_STATUSES, type OperationStatus } from '../../src/domain/operation.ts'
import { openPage } from '../support/cancel-page.ts'

const NOW = Date.parse('2026-11-29T14:20:00Z')

const operationIn = (status: string, changes: Partial<ShownOperation> = {}): ShownOperation => ({
  status,
  version: 1,
  counts: { total: 50_000, applied: 2_300, skipped: 0, failed: 12, uncertain: 3, unprocessed: 47_685 },
  progress: { ratio: 0.046, eta: null },
  cancel: { possible: true, guarantee: 'no_new_sends', requested_at: null },
  ...changes,
})

const shownIn = (status: string, changes: Partial<ShownOperation> = {}) =>
  describeOperation(operationIn(status, changes), NOW)

describe('what a cancel button shows', () => {
  const EXPECTED: Record<OperationStatus, { headline: RegExp; detail: RegExp; canCancel: boolean }> = {
    draft: { headline: /^Not started$/, detail: /being added/, canCancel: true },
    awaiting_approval: { headline: /approval/, detail: /second person/, canCancel: true },
    pending: { headline: /^Waiting to begin$/, detail: /50,000 items/, canCancel: true },
    running: { headline: /^Running$/, detail: /2,300 applied/, canCancel: true },
    pause_requested: { headline: /^Pausing$/, detail: /still waited for/, canCancel: true },
    paused: { headline: /^Paused$/, detail: /goes on where it was/, canCancel: true },
    cancel_requested: { headline: /^Stopping, checking results$/, detail: /Nothing new begins/, canCancel: false },
    reconciliation_required: { headline: /^3 items being checked$/, detail: /provider.*person/, canCancel: true },
    succeeded: { headline: /^Done$/, detail: /applied/, canCancel: false },
    partially_succeeded: { headline: /12 items failed/, detail: /12 failed/, canCancel: false },
    failed: { headline: /^Failed$/, detail: /failed/, canCancel: false },
    cancelled: { headline: /^Cancelled$/, detail: /2,300 applied.*47,685 not processed.*Check/, canCancel: false },
    completed_after_cancel: { headline: /^It was already done$/, detail: /too late.*Check/, canCancel: false },
  }

  it.each(OPERATION_STATUSES)('%s', (status) => {
    const isAsked = ['cancel_requested', 'cancelled', 'completed_after_cancel'].includes(status)
    const asked = {
      possible: !isAsked,
      guarantee: 'no_new_sends',
      requested_at: isAsked ? '2026-11-29T14:19:00Z' : null,
    }
    const shown = shownIn(status, { cancel: asked })
    const expected = EXPECTED[status]
    expect(shown.headline).toMatch(expected.headline)
    expect(shown.detail).toMatch(expected.detail)
    expect(shown.canCancel).toBe(expected.canCancel)
    // what a cancel would do is read before it is pressed, and only then
    expect(shown.promise !== '').toBe(expected.canCancel)
    expect(shown.isFinal).toBe(FINAL_STATUSES.some((final) => final === status))
  })

  it('offers no cancel when one was asked for, or the service says that none is possible', () => {
    const asked = { possible: true, guarantee: 'no_new_sends', requested_at: '2026-11-29T14:19:00Z' }
    expect(shownIn('reconciliation_required', { cancel: asked })).toMatchObject({ canCancel: false })
    expect(shownIn('reconciliation_required', { cancel: asked }).detail).toMatch(/The cancel stands\.$/)
    const impossible = { possible: false, guarantee: 'no_new_sends', requested_at: null }
    expect(shownIn('running', { cancel: impossible })).toMatchObject({ canCancel: false, promise: '' })
  })

  it.each([
    ['discarded_before_publish', /discarded/],
    ['stops_at_batch_boundary', /what is committed stays/],
    ['no_new_sends', /still waited for/],
    ['no_new_commands', /looked up/],
  ])('says what a cancel would do: %s', (guarantee, promise) => {
    expect(shownIn('running', { cancel: { possible: true, guarantee, requested_at: null } }).promise).toMatch(promise)
  })

  it('tells the time that is left', () => {
    expect(shownIn('running', { progress: { ratio: 0.5, eta: '2026-11-29T14:21:30Z' } }).detail).toMatch(
      /about 90 s left$/,
    )
  })

  it('shows a status and a guarantee of a newer service as they are, and goes on polling', () => {
    const cancelOf = { possible: true, guarantee: 'brand_new', requested_at: null }
    const shown = shownIn('hibernating', { cancel: cancelOf })
    expect(shown).toMatchObject({ headline: 'hibernating', isFinal: false, canCancel: true, promise: '' })
    expect(isFinal({ status: 'hibernating' })).toBe(false)
  })
})

/** Answers one after the other, and what was asked and slept in between. */
const script = (answers: (Response | Error)[]) => {
  const asked: { method: string; headers: Record<string, string>; url: string }[] = []
  const slept: number[] = []
  return {
    asked,
    slept,
    fetch: async (url: string, { method = 'GET', headers }: RequestInit) => {
      asked.push({ url, method, headers: headers as Record<string, string> })
      const answer = answers.shift()
      if (answer === undefined) throw new Error('asked too often')
      if (answer instanceof Error) throw answer
      return answer
    },
    sleep: async (ms: number) => void slept.push(ms),
  }
}

const answer = (status: number, body: object | null, headers: Record<string, string> = {}): Response =>
  new Response(body === null ? null : JSON.stringify(body), { status, headers })

describe('polling', () => {
  it('asks with the ETag and a wait, takes 304 for no news, and ends at the final state', async () => {
    const { asked, fetch, sleep } = script([
      answer(200, operationIn('running'), { etag: '"7"' }),
      answer(304, null, { 'preference-applied': 'wait=25' }),
      answer(200, operationIn('succeeded'), { etag: '"8"' }),
    ])
    const seen: string[] = []
    await follow('/operations/op_1', { onState: ({ status }) => seen.push(status), fetch, sleep })
    expect(seen).toEqual(['running', 'succeeded'])
    expect(asked.map(({ headers }) => [headers['if-none-match'], headers.prefer])).toEqual([
      [undefined, undefined],
      ['"7"', 'wait=25'],
      ['"7"', 'wait=25'],
    ])
  })

  it('comes back when a busy service says so, and does not hammer it', async () => {
    const { slept, fetch, sleep } = script([
      answer(200, operationIn('pending'), { etag: '"1"' }),
      answer(304, null, { 'retry-after': '7' }),
      answer(503, { detail: 'overloaded' }, { 'retry-after': '3' }),
      new TypeError('network'),
      answer(200, operationIn('cancelled'), { etag: '"2"' }),
    ])
    const trouble: string[] = []
    await follow('/operations/op_1', { onState: () => {}, onTrouble: (text) => trouble.push(text), fetch, sleep })
    expect(slept.slice(1, 3)).toEqual([7_000, 3_000])
    expect(slept[3]).toBeGreaterThanOrEqual(1_000)
    expect(trouble).toHaveLength(2)
    expect(trouble[0]).toMatch(/goes on/)
  })

  it('throws the text of the problem for what trying again cannot help', async () => {
    const { fetch, sleep } = script([answer(404, { detail: 'There is no operation op_1' })])
    await expect(follow('/operations/op_1', { onState: () => {}, fetch, sleep })).rejects.toThrow(
      'There is no operation op_1',
    )
  })

  it('stops when it is told to', async () => {
    const controller = new AbortController()
    const { asked, fetch, sleep } = script([answer(200, operationIn('running'), { etag: '"7"' })])
    await follow('/operations/op_1', { onState: () => controller.abort(), signal: controller.signal, fetch, sleep })
    expect(asked).toHaveLength(1)
  })
})

describe('asking for a cancel', () => {
  it('asks again when the answer was lost: a cancel is stored once', async () => {
    const { asked, fetch, sleep } = script([
      new TypeError('network'),
      answer(503, null),
      answer(202, operationIn('cancel_requested')),
    ])
    const operation = await cancel('/operations/op_1', { reason: 'wrong text', fetch, sleep })
    expect(operation?.status).toBe('cancel_requested')
    expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual(Array(3).fill('POST /operations/op_1/cancel'))
  })

  it('takes an operation that had ended before for no fault', async () => {
    const { fetch, sleep } = script([answer(409, { code: 'operation-already-final', detail: 'It has ended' })])
    expect(await cancel('/operations/op_1', { reason: 'x', fetch, sleep })).toBeNull()
  })

  it('says so when nobody knows whether the cancel is stored, and what a refusal says', async () => {
    const lost = script(Array.from({ length: 5 }, () => new TypeError('network')))
    await expect(cancel('/operations/op_1', { reason: 'x', ...lost })).rejects.toThrow(/may not be stored/)
    const refused = script([answer(403, { detail: 'The API key lacks the scope write' })])
    await expect(cancel('/operations/op_1', { reason: 'x', ...refused })).rejects.toThrow(/lacks the scope/)
  })
})

describe('the page', () => {
  afterEach(() => {
    vi.unstubAllGlobals()
    vi.useRealTimers()
  })

  /** A page with a poll that is not answered yet. */
  const openPolling = async () => {
    vi.useFakeTimers()
    const polls: ((response: Response) => void)[] = []
    const posts: ((response: Response) => void)[] = []
    vi.stubGlobal('fetch', (_: string, { method }: RequestInit) => {
      return new Promise<Response>((resolve) => (method === 'POST' ? posts : polls).push(resolve))
    })
    const page = openPage()
    const close = mount(page, '/operations/op_1')
    polls.shift()?.(answer(200, operationIn('running', { version: 7 }), { etag: '"7"' }))
    await vi.advanceTimersByTimeAsync(1_000)
    expect(polls).toHaveLength(1)
    return { page, polls, posts, close }
  }

  it('does not go back to what was before the cancel when an older poll is answered after it', async () => {
    const { page, polls, posts, close } = await openPolling()
    page.press()
    expect(page.parts.button.disabled).toBe(true)
    const cancel = { possible: false, guarantee: 'no_new_sends', requested_at: '2026-11-29T14:19:00Z' }
    posts.shift()?.(answer(202, operationIn('cancel_requested', { version: 9, cancel })))
    await vi.advanceTimersByTimeAsync(0)
    polls.shift()?.(answer(200, operationIn('running', { version: 8 }), { etag: '"8"' }))
    await vi.advanceTimersByTimeAsync(1_000)
    expect(page.headlines).toEqual(['Running', 'Stopping, checking results'])
    expect(page.parts.button.hidden).toBe(true)
    polls.shift()?.(answer(200, operationIn('cancelled', { version: 10, cancel }), { etag: '"10"' }))
    await vi.advanceTimersByTimeAsync(0)
    expect(page.headlines.at(-1)).toBe('Cancelled')
    close()
  })

  it('says what kept it from the service, and gives the button back when a cancel was refused', async () => {
    const { page, polls, posts, close } = await openPolling()
    page.press()
    posts.shift()?.(answer(403, { detail: 'The API key lacks the scope write' }))
    await vi.advanceTimersByTimeAsync(0)
    expect(page.parts.trouble.textContent).toMatch(/lacks the scope/)
    expect(page.parts.button.disabled).toBe(false)
    polls.shift()?.(answer(404, { detail: 'There is no operation op_1' }))
    await vi.advanceTimersByTimeAsync(0)
    expect(page.parts.trouble.textContent).toBe('There is no operation op_1')
    close()
  })
})
