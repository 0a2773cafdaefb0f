import type { ChildProcess } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { isAlive, isOccupied } from '../../src/embedded/process-table.ts'
import { spawnScript, until, waitForExit, waitForLine } from '../support/processes.ts'
import { startWebhookReceiver } from '../support/webhook-receiver.ts'

/** The whole of `npm start`, as real processes on a data directory of their own. Needs /proc to see the children. */
const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-start-'))
const cluster = path.join(root, 'data', 'postgres')
let port = 0
let started: ChildProcess[] = []

const start = (env: Record<string, string> = {}): ChildProcess => {
  const base = {
    PATH: '/usr/bin:/bin',
    PORT: String(port),
    OPLEDGER_DATA_DIR: path.join(root, 'data'),
    LOG_LEVEL: 'info',
  }
  const child = spawnScript('../../src/start.ts', [], { env: { ...base, ...env } })
  started.push(child)
  return child
}
const ready = (child: ChildProcess) => waitForLine(child, /^opledger is ready/)
const isReady = async (): Promise<boolean> => {
  try {
    return (await fetch(`http://127.0.0.1:${port}/readyz`)).ok
  } catch {
    return false
  }
}

/** The pids of our api or worker processes below `start`. */
const childrenOf = (parent: ChildProcess, entry: 'api' | 'worker'): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
        const [state, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        return state !== 'Z' && Number(ppid) === parent.pid && command.includes(`/src/${entry}.ts`)
      } catch {
        return false // it ended while we looked
      }
    })
    .map(Number)
const isGone = (pids: number[]): boolean => pids.every((pid) => !isAlive({ pid, startedAt: null }))

describe.runIf(process.platform === 'linux')('start', () => {
  beforeAll(async () => {
    chmodSync(root, 0o755)
    port = await choosePort(null)
  })
  afterEach(async () => {
    for (const child of started) {
      child.kill('SIGTERM')
      await waitForExit(child)
    }
    started = []
    await until('nothing works in the data directory', () => !isOccupied(cluster))
  })
  afterAll(() => rmSync(root, { recursive: true, force: true, maxRetries: 5 }))

  it('brings everything up, starts what dies again, and leaves nothing behind', async () => {
    const service = start({ WORKERS: '2' })
    await ready(service)
    const workers = childrenOf(service, 'worker')
    const api = childrenOf(service, 'api')
    expect([workers.length, api.length]).toEqual([2, 1])
    for (const pid of [...workers, ...api]) process.kill(pid, 'SIGKILL')
    await until('other workers and another api run', async () => {
      const now = [...childrenOf(service, 'worker'), ...childrenOf(service, 'api')]
      return now.length === 3 && isGone([...workers, ...api]) && (await isReady())
    })
    await expectWebhook()
    const all = [...childrenOf(service, 'worker'), ...childrenOf(service, 'api')]
    service.kill('SIGTERM')
    service.kill('SIGTERM') // npm and the process group deliver it twice
    expect(await waitForExit(service)).toEqual({ code: 0, signal: null })
    expect(isGone(all)).toBe(true)
    expect(isOccupied(cluster)).toBe(false)
  })

  /** It made a secret of its own, for api and workers, and may call this machine. */
  const expectWebhook = async (): Promise<void> => {
    const file = path.join(root, 'data', 'webhook-secret')
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const receiver = await startWebhookReceiver()
    try {
      const answer = await fetch(`http://127.0.0.1:${port}/operations`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          type: 'example-notify',
          items: [{ key: 'a', input: { to: 'somebody' } }],
          callback_url: receiver.url,
        }),
      })
      expect(answer.status).toBe(202)
      await until('the webhook arrived', () => receiver.received.length === 1)
      const [{ headers, body } = { headers: {}, body: '' }] = receiver.received
      const payload = new Webhook(readFileSync(file, 'utf8').trim()).verify(String(body), headers)
      expect(payload).toMatchObject({ type: 'operation.settled', data: { operation: { status: 'succeeded' } } })
    } finally {
      await receiver.close()
    }
  }

  it('killed itself, it takes api and workers along, and its PostgreSQL is adopted by the next one', async () => {
    const service = start()
    await ready(service)
    const pids = [...childrenOf(service, 'worker'), ...childrenOf(service, 'api')]
    service.kill('SIGKILL')
    await until('api and workers noticed', () => isGone(pids))
    expect(isOccupied(cluster)).toBe(true)
    const adopted = waitForLine(start(), /"adopted":true/)
    await adopted
    await until('it is ready again', isReady)
  })

  it('can be told to stop during the boot', async () => {
    const service = start()
    await waitForLine(service, /embedded PostgreSQL runs/)
    service.kill('SIGINT')
    expect(await waitForExit(service)).toEqual({ code: 0, signal: null })
    expect(isOccupied(cluster)).toBe(false)
  })

  const refusal = async (env: Record<string, string>): Promise<{ code: number | null; stderr: string }> => {
    const service = start(env)
    let stderr = ''
    service.stderr?.on('data', (chunk) => {
      stderr += String(chunk)
    })
    service.stdout?.resume()
    const { code } = await waitForExit(service)
    return { code, stderr }
  }
  it('refuses an unknown key, a missing type file and a busy port in one line each', async () => {
    expect(await refusal({ OPLEDGER_TYPO: '1' })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^opledger: OPLEDGER_TYPO: [^\n]+\n$/),
    })
    expect(await refusal({ OPLEDGER_TYPES: path.join(root, 'none.yaml') })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^opledger: [^\n]*none\.yaml[^\n]*\n$/),
    })
    const holder = net.createServer().listen(port, '127.0.0.1')
    try {
      expect(await refusal({})).toMatchObject({ code: 1, stderr: expect.stringMatching(/^opledger: PORT: [^\n]+\n$/) })
    } finally {
      await new Promise((resolve) => holder.close(resolve))
    }
  })
})
