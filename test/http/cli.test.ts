/** The command line as a process of its own, against a real api and a real worker. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import net, { type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Operation } from '../../src/cli/api-types.ts'
import { EXIT } from '../../src/cli/exit-codes.ts'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { until } from '../support/processes.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const directory = mkdtempSync(path.join(tmpdir(), 'opledger-cli-'))
const types = writeTypeFile([grantType('grant', { idempotency_key: 'required' })])
let database: TestDatabase
let effects: EffectServer
let api: ApiProcess
let workers: WorkerFleet

beforeAll(async () => {
  database = await createTestDatabase()
  effects = await startEffectServer()
  const process = { databaseUrl: database.url, typeFiles: [types.file], env: { EFFECTS_URL: effects.url } }
  workers = openWorkerFleet(process)
  ;[api] = await Promise.all([startApi(process), workers.start()])
})
afterAll(async () => {
  await workers?.stop()
  await api?.kill()
  await effects?.close()
  await database?.drop()
  types.remove()
  rmSync(directory, { recursive: true })
})

const CLI = fileURLToPath(new URL('../../src/cli.ts', import.meta.url))

interface Run {
  child: ChildProcess
  stdout: () => string
  stderr: () => string
  code: Promise<number | null>
}

const start = (args: readonly string[], url = api.url): Run => {
  const child = spawn(process.execPath, ['--import', 'tsx', CLI, ...args], {
    env: { PATH: process.env.PATH, OPLEDGER_URL: url, DATABASE_URL: database.url },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const texts = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.on('data', (chunk) => {
      texts[name] += String(chunk)
    })
  }
  // 'close', not 'exit': the pipes may still hold what was printed last
  const code = once(child, 'close').then(([ended]) => ended as number | null)
  return { child, code, stdout: () => texts.stdout, stderr: () => texts.stderr }
}

const run = async (...args: string[]) => {
  const { code, stdout, stderr } = start(args)
  return { code: await code, stdout: stdout(), stderr: stderr() }
}

const csv = (name: string, rows: readonly string[]): string => {
  const file = path.join(directory, name)
  writeFileSync(file, `key,mode\n${rows.join('\n')}\n`)
  return file
}

const operationOf = (text: string): Operation => JSON.parse(text) as Operation

const listed = async (): Promise<Operation[]> =>
  ((await (await fetch(`${api.url}/operations?limit=500`)).json()) as { items: Operation[] }).items

/** More than the request that makes the draft, and far less than the rows. */
const HELD_AFTER_BYTES = 300_000

/** Leads to the api, and lets no more than so many bytes of a connection pass; `held` when one wanted more. */
const openNarrowRoad = async (
  bytesMax: number,
): Promise<{ url: string; held: Promise<void>; close(): Promise<void> }> => {
  const sockets = new Set<net.Socket>()
  let tellHeld: () => void = () => {}
  const held = new Promise<void>((resolve) => {
    tellHeld = resolve
  })
  const server = net.createServer((client) => {
    const service = net.connect(Number(new URL(api.url).port), '127.0.0.1')
    for (const socket of [client, service]) {
      sockets.add(socket)
      socket.on('error', () => {}) // cut on purpose
      socket.on('close', () => {
        client.destroy()
        service.destroy()
      })
    }
    let bytes = 0
    client.on('data', (chunk) => {
      bytes += chunk.length
      service.write(chunk)
      if (bytes < bytesMax) return
      client.pause()
      tellHeld()
    })
    service.pipe(client)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    held,
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** A dozen commands, each a new process, on a machine that has other things to do. */
const WALK_MS = 240_000

describe('the command line', { timeout: WALK_MS }, () => {
  it('submits a file, waits, and ends with its outcome; the same command again submits nothing', async () => {
    const file = csv('mixed.csv', ['granted,ok', 'refused,reject'])
    const first = await run('submit', file, '--type', 'grant', '--wait', '--json')
    expect(first.code, first.stderr).toBe(EXIT.notWell)
    expect(operationOf(first.stdout)).toMatchObject({
      status: 'partially_succeeded',
      counts: { applied: 1, failed: 1 },
    })
    const before = (await listed()).length
    const again = await run('submit', file, '--type', 'grant', '--wait', '--json')
    expect(operationOf(again.stdout).id).toBe(operationOf(first.stdout).id)
    expect(again.stderr).toContain('was submitted before')
    expect(await listed()).toHaveLength(before)
  })

  it('names the line of a bad row, keeps no draft open, and takes the mended file', async () => {
    const bad = await run('submit', csv('bad.csv', [',ok']), '--type', 'grant')
    expect(bad.code).toBe(EXIT.refused)
    expect(bad.stderr).toMatch(/line 2/)
    expect((await listed()).filter(({ status }) => status === 'draft')).toEqual([])
    const good = await run('submit', csv('bad.csv', ['x,ok']), '--type', 'grant', '--wait')
    expect(good.code, good.stderr).toBe(EXIT.ok)
  })

  it('goes on where it was when it is killed in the middle of an upload', async () => {
    const rows = Array.from({ length: 200_000 }, (_, row) => `key-${row},ok`)
    const file = csv('large.csv', rows)
    const road = await openNarrowRoad(HELD_AFTER_BYTES)
    try {
      const killed = start(['submit', file, '--type', 'grant'], road.url)
      await road.held
      killed.child.kill('SIGKILL')
      await killed.code
    } finally {
      await road.close()
    }
    const drafts = (await listed()).filter(({ status }) => status === 'draft')
    expect(drafts.map(({ counts }) => counts.total)).toEqual([0])
    const again = await run('submit', file, '--type', 'grant', '--json')
    expect(again.code, again.stderr).toBe(EXIT.ok)
    expect(operationOf(again.stdout)).toMatchObject({ id: drafts[0]?.id, counts: { total: rows.length } })
    expect((await run('cancel', drafts[0]?.id ?? '', '--wait')).code).toBe(EXIT.ok)
  })

  it('says how to go on when it is interrupted, and the operation goes on', async () => {
    const file = path.join(directory, 'slow.ndjson')
    const rows = Array.from({ length: 400 }, (_, row) => ({ key: `slow-${row}`, input: { delay_ms: 500 } }))
    writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
    const submitted = await run('submit', file, '--type', 'grant', '--json')
    const { id } = operationOf(submitted.stdout)
    const watching = start(['watch', id])
    await until('it shows the progress', () => watching.stderr() !== '', WALK_MS)
    watching.child.kill('SIGINT')
    expect(await watching.code).toBe(EXIT.interrupted)
    expect(watching.stderr()).toContain(`opledger watch ${id}`)
    const cancelled = await run('cancel', id, '--wait', '--reason', 'seen enough', '--json')
    expect(cancelled.code, cancelled.stderr).toBe(EXIT.ok)
    expect(operationOf(cancelled.stdout)).toMatchObject({ status: 'cancelled', cancel: { reason: 'seen enough' } })
  })

  it('walks from a doubt to its replay, with the exit codes of each step', async () => {
    const file = csv('doubt.csv', ['lost,apply_then_reset'])
    const doubtful = await run('submit', file, '--type', 'grant', '--wait', '--json')
    expect(doubtful.code, doubtful.stderr).toBe(EXIT.undecided)
    const { id } = operationOf(doubtful.stdout)
    const blocked = await run('preflight', id)
    expect([blocked.code, /BLOCKED by/.test(blocked.stdout)]).toEqual([EXIT.blocked, true])
    expect((await run('replay', id, '--reason', 'x', '--yes')).code).toBe(EXIT.blocked)
    const cases = await run('reconcile', 'list', '--operation', id, '--json')
    expect(cases.code).toBe(EXIT.undecided)
    const [open] = JSON.parse(cases.stdout) as { id: string }[]
    const resolve = ['reconcile', 'resolve', open?.id ?? '', '--evidence', 'ticket 7']
    expect((await run(...resolve)).code).toBe(EXIT.usage)
    expect((await run(...resolve, '--not-applied')).code).toBe(EXIT.ok)
    const late = await run(...resolve, '--applied')
    expect([late.code, /case-already-resolved/.test(late.stderr)]).toEqual([EXIT.refused, true])
    expect((await run('reconcile', 'list', '--operation', id)).code).toBe(EXIT.ok)
    const allowed = await run('preflight', id, '--json')
    expect(allowed.code, allowed.stderr).toBe(EXIT.ok)
    const { preflight_id } = JSON.parse(allowed.stdout) as { preflight_id: string }
    const replay = ['replay', id, '--preflight', preflight_id, '--reason', 'ticket 7', '--json']
    const first = operationOf((await run(...replay)).stdout)
    expect(first.replay_of).toBe(id)
    expect(operationOf((await run(...replay)).stdout).id).toBe(first.id)
  })

  it('migrates, and makes, lists and ends keys, on the database itself', async () => {
    const migrated = await run('migrate')
    expect([migrated.code, migrated.stdout], migrated.stderr).toEqual([EXIT.ok, 'The schema is up to date.\n'])
    const created = await run('keys', 'create', '--name', 'billing', '--scopes', 'read')
    expect(created.stdout, created.stderr).toMatch(/^opl_\S+\n$/)
    const listed = await run('keys', 'list', '--json')
    const [key] = JSON.parse(listed.stdout) as { id: string }[]
    const scopes = ['operations:read', 'ledger:read', 'metrics:read']
    expect(key).toMatchObject({ name: 'billing', tenant: 'default', scopes, revoked_at: null })
    expect(listed.stdout).not.toContain(created.stdout.trim())
    expect((await run('keys', 'revoke', key?.id ?? '')).code).toBe(EXIT.ok)
    expect((await run('keys', 'list')).stdout).toMatch(/default {2}billing {2}operations:read,\S+ {2}revoked/)
    expect((await run('keys', 'revoke', key?.id ?? '')).code).not.toBe(EXIT.ok)
    const { items } = (await (await fetch(`${api.url}/audit?subject=${key?.id}`)).json()) as { items: { at: string }[] }
    expect(items).toMatchObject([
      { action: 'api_key.revoke', auth: 'command_line', actor: expect.stringMatching(/^.+@.+$/) },
      {
        action: 'api_key.create',
        details: { name: 'billing', scopes: 'operations:read ledger:read metrics:read', expires_in_days: 'never' },
      },
    ])
    expect(JSON.stringify(items)).not.toContain(created.stdout.trim())
  })

  it('makes tenants, and keys of them; a rotated key has a new secret, and the old one for a while', async () => {
    const made = await run('tenants', 'create', 'acme')
    expect([made.code, made.stdout], made.stderr).toEqual([EXIT.ok, '2  acme\n'])
    expect((await run('tenants', 'create', 'acme')).code).not.toBe(EXIT.ok)
    expect((await run('tenants', 'create', 'No Name')).code).not.toBe(EXIT.ok)
    expect((await run('tenants', 'list')).stdout).toMatch(/^1 {2}default .*\n2 {2}acme /)
    const key = ['keys', 'create', '--tenant', 'acme', '--name', 'viewer', '--scopes', 'operations:read,metrics']
    const created = await run(...key)
    expect(created.code, created.stderr).toBe(EXIT.ok)
    const listed = async () => JSON.parse((await run('keys', 'list', '--tenant', 'acme', '--json')).stdout)
    const [shown] = await listed()
    expect(shown).toMatchObject({ tenant: 'acme', name: 'viewer', rotated_at: null, previous_secret_until: null })
    expect(shown.scopes).toEqual(['operations:read', 'metrics:read', 'metrics:service'])
    const rotated = await run('keys', 'rotate', shown.id, '--grace-hours', '2')
    expect([rotated.code, /^opl_\S+\n$/.test(rotated.stdout)], rotated.stderr).toEqual([EXIT.ok, true])
    expect(rotated.stdout).not.toBe(created.stdout)
    const until = Date.parse((await listed())[0].previous_secret_until)
    expect(until - Date.now()).toBeGreaterThan(3_600_000)
    expect((await run('keys', 'rotate', shown.id, '--tenant', 'default')).code).not.toBe(EXIT.ok)
    expect((await run('keys', 'revoke', shown.id, '--tenant', 'nobody')).stderr).toContain(
      '--tenant: there is no tenant',
    )
    expect((await run('keys', 'revoke', shown.id, '--tenant', 'acme')).code).toBe(EXIT.ok)
    expect((await run('keys', 'rotate', shown.id)).code).not.toBe(EXIT.ok)
    expect((await run('keys', 'create', '--name', 'x', '--scopes', 'root')).stderr).toContain('--scopes: "root"')
    const long = await run('keys', 'create', '--name', 'x'.repeat(256))
    expect([long.stdout, long.stderr]).toEqual(['', expect.stringContaining('--name: must have 1 to 255 bytes')])
  })

  it('shows health and incidents, and ends with their verdict', async () => {
    const report = await run('health', '--json')
    const { types: reported } = JSON.parse(report.stdout) as {
      types: { figures: { verdict: string }[]; cancel_contract: { verdict: string }[] }[]
    }
    const figures = reported.flatMap(({ figures: four, cancel_contract: five }) => [...four, ...five])
    const isAlarm = figures.some(({ verdict }) => verdict === 'alarm')
    expect(report.code, report.stderr).toBe(isAlarm ? EXIT.notWell : EXIT.ok)
    const busy = await run('submit', csv('busy.csv', ['turned-away,busy']), '--type', 'grant', '--wait')
    expect(busy.code, busy.stderr).toBe(EXIT.notWell)
    const alarmed = await run('health', '--quiet')
    expect([alarmed.code, alarmed.stdout.includes('dead_letters')], alarmed.stdout).toEqual([EXIT.notWell, true])
    const open = await run('incidents', 'list', '--json')
    expect(open.code, open.stderr).toBe(EXIT.notWell)
    const [incident] = JSON.parse(open.stdout) as { id: string }[]
    const resolved = await run('incidents', 'resolve', incident?.id ?? '', '--reason', 'more room')
    expect(resolved.stdout, resolved.stderr).toMatch(/next: opledger preflight op_\w+ --state failed/)
    expect((await run('incidents', 'list')).code).toBe(EXIT.ok)
  })

  it('tells a service that is not there from one that says no, and from a typo', async () => {
    const away = start(['health'], 'http://127.0.0.1:9')
    expect(await away.code).toBe(EXIT.unavailable)
    const unknown = await run('watch', `op_${'0'.repeat(32)}`)
    expect(unknown.code).toBe(EXIT.refused)
    expect(unknown.stderr).toContain(`${api.url}/problems/operation-not-found`)
    expect((await run('health', '--loud')).code).toBe(EXIT.usage)
  })
})
