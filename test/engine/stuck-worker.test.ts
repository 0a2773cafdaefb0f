import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { type NotifySocket, openNotifySocket } from '../support/notify-socket.ts'
import { spawnScript, until, waitForExit } from '../support/processes.ts'
import { expectConserved, openTestService, untilStatus } from '../support/service.ts'
import { poisonTypeFile } from '../support/service-poison-type.ts'

const WITHIN_MS = 160_000
const isThere = (program: string): boolean => {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
/** The program that Debian's package systemd brings; a manager is not needed. */
const canNotify = isThere('systemd-notify') && isThere('perl')

interface Supervised {
  ends: { code: number | null; signal: string | null }[]
  output(): string
  /** Tells the process of now to drain, and starts no other one. */
  stop(): Promise<void>
}

/** What a unit with Restart=always does: whenever the process ends, a new one is started. */
const supervise = (script: string, env: Record<string, string>): Supervised => {
  const ends: Supervised['ends'] = []
  let text = ''
  let stopped = false
  let child = spawnScript(script, [], { env })
  const keep = async (): Promise<void> => {
    for (;;) {
      for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (text += String(chunk)))
      ends.push(await waitForExit(child))
      if (stopped) return
      child = spawnScript(script, [], { env })
    }
  }
  const kept = keep()
  return {
    ends,
    output: () => text,
    async stop() {
      stopped = true
      child.kill('SIGTERM')
      await kept
    },
  }
}

const inOrder = (messages: string[], ...wanted: string[]): boolean => {
  let at = -1
  return wanted.every((part) => {
    at = messages.findIndex((message, place) => place > at && message.includes(part))
    return at >= 0
  })
}

test('a worker that gets nowhere ends itself, and the one that is started after it does its work', {
  timeout: WITHIN_MS + 60_000,
}, async ({ skip }) => {
  if (!canNotify) skip('systemd-notify or perl is not there')
  const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-stuck-'))
  const service = await openTestService({ typeFiles: [poisonTypeFile] })
  await service.database.query(({ sql }) => sql`create table touched (key text not null)`)
  const socket: NotifySocket = await openNotifySocket()
  const { id } = await service.submit('poison', [{ key: 'a', input: { mode: 'ok' } }])
  const worker = supervise('./stuck-worker.ts', {
    PATH: '/usr/bin:/bin',
    DATABASE_URL: service.url,
    OPLEDGER_TYPES: poisonTypeFile,
    WORKER_CONCURRENCY: '1',
    LOG_LEVEL: 'info',
    STUCK_ONCE: path.join(directory, 'stuck'),
    NOTIFY_SOCKET: socket.path,
    WATCHDOG_USEC: '2000000',
  })
  try {
    await until('the stuck worker has ended', () => worker.ends.length > 0, WITHIN_MS)
    expect(worker.ends).toEqual([{ code: 1, signal: null }])
    expect(worker.output()).toContain('this process gets nowhere; it ends itself')
    expect(inOrder(socket.messages(), 'READY=1', 'WATCHDOG=1', 'STATUS=stuck', 'STOPPING=1')).toBe(true)
    const stuckAt = socket.messages().findIndex((message) => message.includes('STATUS=stuck'))
    const readyAgainAt = socket.messages().findIndex((message, place) => place > stuckAt && /READY/.test(message))
    const between = socket.messages().slice(stuckAt, readyAgainAt < 0 ? undefined : readyAgainAt)
    expect(between.filter((message) => message.includes('WATCHDOG=1'))).toEqual([])

    const view = await untilStatus(service, id, 'succeeded', WITHIN_MS)
    expect(view.counts).toMatchObject({ applied: 1, failed: 0 })
    await expectConserved(service, id)
    await socket.until('the new one says that it is alive', (messages) =>
      inOrder(messages, 'STATUS=stuck', 'READY=1', 'WATCHDOG=1'),
    )
    await worker.stop()
    expect(worker.ends.at(-1)).toEqual({ code: 0, signal: null })
  } finally {
    await worker.stop()
    await socket.close()
    await service.close()
    rmSync(directory, { recursive: true, force: true })
  }
})
