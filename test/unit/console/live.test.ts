import { describe, expect, it } from 'vitest'
import { readServerSentEvents, type ServerSentEvent } from '../../../src/console/api/server-sent-events.ts'
import { histogram } from '../../../src/console/live/histogram.ts'
import { addSample, parseTrends, type Sample } from '../../../src/console/live/trend.ts'

const streamOf = (chunks: readonly string[], end = true): ReadableStream<Uint8Array> =>
  new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(new TextEncoder().encode(chunk))
      if (end) controller.close()
    },
  })

const readAll = async (stream: ReadableStream<Uint8Array>, silenceMs?: number): Promise<ServerSentEvent[]> => {
  const events: ServerSentEvent[] = []
  for await (const event of readServerSentEvents(stream, silenceMs)) events.push(event)
  return events
}

describe('server-sent events', () => {
  const frames = 'retry: 2000\n\nid: 1\nevent: started\ndata: {"a":"ü"}\n\n: keep-alive\n\nid: 2\ndata: x\ndata:y\n\n'
  const expected = [
    { id: '1', event: 'started', data: '{"a":"ü"}' },
    { id: '2', event: 'message', data: 'x\ny' },
  ]

  it('are read', async () => {
    expect(await readAll(streamOf([frames]))).toEqual(expected)
  })

  it('are read however they are cut', async () => {
    expect(await readAll(streamOf([...frames]))).toEqual(expected)
  })

  it('are not read in half', async () => {
    expect(await readAll(streamOf(['id: 1\ndata: half']))).toEqual([])
  })

  it('end when the stream is silent for too long', async () => {
    await expect(readAll(streamOf([frames], false), 10)).rejects.toThrow('silent')
  })
})

describe('trends', () => {
  const MINUTE = 60_000

  it('keep a value each five minutes, and the latest', () => {
    let samples: Sample[] = []
    for (let minute = 0; minute <= 20; minute += 1) samples = addSample(samples, minute * MINUTE, minute)
    expect(samples.map(([, value]) => value).at(-1)).toBe(20)
    expect(samples.length).toBeLessThan(8)
    expect(samples[0]).toEqual([0, 0])
  })

  it('forget what is older than a day', () => {
    const samples = addSample([[0, 1]], 25 * 60 * MINUTE, 2)
    expect(samples).toEqual([[25 * 60 * MINUTE, 2]])
  })

  it.each(['', 'x', '[]', 'null', '{"a":5}', '{"a":[[1,2],["x"],null]}'])('survive what else was kept: %s', (text) => {
    const trends = parseTrends(text)
    for (const samples of Object.values(trends)) for (const sample of samples) expect(sample).toEqual([1, 2])
  })
})

describe('histogram', () => {
  it('counts every time once, with the empty spans between', () => {
    const bars = histogram([0, 10, 65, 200])
    expect(bars).toEqual({ times: [0, 60, 120, 180], counts: [2, 1, 0, 1] })
  })

  it('has few bars, however long it takes', () => {
    for (const span of [0, 3_600, 86_400 * 30, 86_400 * 3_000]) {
      const { counts } = histogram([1_000, 1_000 + span])
      expect(counts.length).toBeLessThanOrEqual(50)
      expect(counts.reduce((sum, count) => sum + count, 0)).toBe(2)
    }
    expect(histogram([])).toEqual({ times: [], counts: [] })
  })
})
