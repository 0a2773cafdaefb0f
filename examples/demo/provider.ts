/**
 * The outside world of the demo: a provider of grants that misbehaves, and the judge of what was really done. Every
 * request and every effect is written to its log before anything is answered. It does not deduplicate: a grant that is
 * sent twice is granted twice, and the account would show it.
 *
 * What it does with a request follows from (seed, key, number of the request) alone, so a run can be repeated.
 */
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { type EffectEntry, startLagMeter } from '../../test/invariants/effect-log.ts'

/** What the provider does for good with a key, in shares of all keys; the rest is granted when asked. */
const KEY_MOODS = [
  ['rejects', 0.01],
  ['conflicts', 0.005],
  ['forbids', 0.003],
  ['granted_before', 0.01],
] as const
/** What it does with one request, in shares of all requests; the rest is granted and answered. */
const REQUEST_MOODS = [
  ['hangs_after_applying', 0.008],
  ['resets_before_applying', 0.015],
  ['resets_after_applying', 0.015],
  ['fails_before_applying', 0.015],
  ['fails_after_applying', 0.015],
  ['is_busy', 0.02],
] as const
type Mood = (typeof KEY_MOODS)[number][0] | (typeof REQUEST_MOODS)[number][0] | 'grants'

/** One key in so many is never found by the provider's own lookup. */
const SILENT_KEYS = 25
const LATENCY_MS = { min: 20, max: 120 }

interface ProviderEntry extends EffectEntry {
  arrivals: number[]
  appliedAt: number[]
  /** Requests that it has not acted on yet: what became of the key is not decided. */
  pending: number
}

export interface Provider {
  url: string
  entries(): ReadonlyMap<string, ProviderEntry>
  /** How late it has been for anything: this process does more than provide. */
  lagMs(): number
  /** How often it did what. */
  moods(): ReadonlyMap<Mood, number>
  close(): Promise<void>
}

/** A number in [0, 1) that depends on nothing but its names. */
export const chance = (...names: (string | number)[]): number =>
  createHash('sha256').update(names.join('\n')).digest().readUInt32BE(0) / 2 ** 32

const grantId = (key: string): string => `grant-${createHash('sha256').update(key).digest('hex').slice(0, 12)}`

const choose = <Name extends string>(shares: readonly (readonly [Name, number])[], at: number): Name | null => {
  let sum = 0
  for (const [name, share] of shares) {
    sum += share
    if (at < sum) return name
  }
  return null
}

const readBody = async (request: http.IncomingMessage): Promise<void> => {
  for await (const _ of request);
}

const answer = (response: http.ServerResponse, status: number, body: unknown): void => {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

export const startProvider = async (options: { seed: number; logFile: string }): Promise<Provider> => {
  const { seed } = options
  const file = fs.openSync(options.logFile, 'a')
  const entries = new Map<string, ProviderEntry>()
  const moods = new Map<Mood, number>()
  const lagMs = startLagMeter()

  const entryOf = (key: string): ProviderEntry => {
    const known = entries.get(key)
    if (known) return known
    const entry: ProviderEntry = { requests: 0, pending: 0, applied: 0, arrivals: [], appliedAt: [] }
    entries.set(key, entry)
    return entry
  }
  const keyMood = (key: string) => choose(KEY_MOODS, chance(seed, 'key', key))
  const write = (event: string, key: string): void => {
    fs.writeSync(file, `${JSON.stringify({ at: new Date().toISOString(), event, key })}\n`)
  }

  const act = (key: string, mood: Mood, request: http.IncomingMessage, response: http.ServerResponse): void => {
    const apply = (): { id: string } => {
      write('applied', key)
      const entry = entryOf(key)
      entry.applied += 1
      entry.appliedAt.push(Date.now())
      return { id: grantId(key) }
    }
    switch (mood) {
      case 'grants':
        answer(response, 201, apply())
        break
      case 'granted_before':
        answer(response, 208, {})
        break
      case 'rejects':
        answer(response, 422, { code: 'NO_SUCH_USER' })
        break
      case 'conflicts':
        answer(response, 409, { code: 'OTHER_ROLE_HELD' })
        break
      case 'forbids':
        answer(response, 403, { code: 'NOT_ALLOWED' })
        break
      case 'is_busy':
        answer(response, 503, {})
        break
      case 'hangs_after_applying':
        apply()
        break
      case 'resets_before_applying':
        request.socket.resetAndDestroy()
        break
      case 'resets_after_applying':
        apply()
        request.socket.resetAndDestroy()
        break
      case 'fails_before_applying':
        answer(response, 500, {})
        break
      case 'fails_after_applying':
        apply()
        answer(response, 500, {})
        break
    }
  }

  const grant = (key: string, request: http.IncomingMessage, response: http.ServerResponse): void => {
    write('request', key)
    const entry = entryOf(key)
    entry.requests += 1
    entry.arrivals.push(Date.now())
    entry.pending += 1
    const mood = keyMood(key) ?? choose(REQUEST_MOODS, chance(seed, 'request', key, entry.requests)) ?? 'grants'
    moods.set(mood, (moods.get(mood) ?? 0) + 1)
    const latencyMs = LATENCY_MS.min + chance(seed, 'latency', key, entry.requests) * (LATENCY_MS.max - LATENCY_MS.min)
    setTimeout(() => {
      act(key, mood, request, response)
      entry.pending -= 1
    }, latencyMs)
  }

  /** What became of this key. A grant that existed before has another key, and is not found by this one. */
  const find = (key: string, response: http.ServerResponse): void => {
    if (isSilent(seed, key)) answer(response, 202, { state: 'processing' })
    else if ((entries.get(key)?.applied ?? 0) > 0) answer(response, 200, { id: grantId(key) })
    else answer(response, 404, {})
  }

  const server = http.createServer((request, response) => {
    readBody(request)
      .then(() => {
        const { pathname } = new URL(request.url ?? '/', 'http://provider')
        if (request.method === 'POST') grant(String(request.headers['idempotency-key']), request, response)
        else find(decodeURIComponent(pathname.slice('/grants/'.length)), response)
      })
      .catch(() => response.destroy())
  })
  // Longer than the demo: an idle connection closed under a request would make one more uncertain effect.
  server.keepAliveTimeout = 300_000
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    entries: () => entries,
    lagMs,
    moods: () => moods,
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          fs.closeSync(file)
          resolve()
        })
        server.closeAllConnections()
      }),
  }
}

const isSilent = (seed: number, key: string): boolean => chance(seed, 'silent', key) < 1 / SILENT_KEYS
