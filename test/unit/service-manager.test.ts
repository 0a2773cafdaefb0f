import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { loadConfig, type ServiceManagerSettings } from '../../src/config.ts'
import { openServiceManager, type ServiceManager } from '../../src/service-manager.ts'
import { until } from '../support/processes.ts'

/** A program in place of systemd-notify: it writes down what it was called with, one line a message. */
let directory: string
let command: string
let manager: ServiceManager | null = null
beforeEach(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-manager-'))
  command = path.join(directory, 'notify')
  writeFileSync(command, `#!/bin/sh\necho "$NOTIFY_SOCKET $*" >> ${directory}/told\n`)
  chmodSync(command, 0o755)
})
afterEach(() => {
  manager?.close()
  manager = null
  rmSync(directory, { recursive: true, force: true })
})

const told = (): string[] =>
  existsSync(path.join(directory, 'told'))
    ? readFileSync(path.join(directory, 'told'), 'utf8')
        .split('\n')
        .filter((line) => line !== '')
    : []

const settings = (watchdogMs: number | null): ServiceManagerSettings => ({
  socket: '/run/notify',
  watchdogMs,
  path: '/usr/bin:/bin',
})

const open = (over: { settings: ServiceManagerSettings | null; stuck?: () => string | null; command?: string }) => {
  const logged: string[] = []
  let stuckCalls = 0
  const log = pino({ level: 'warn', base: null }, { write: (line) => logged.push(JSON.parse(line).msg) })
  manager = openServiceManager({ log, stuck: () => null, onStuck: () => stuckCalls++, command, ...over })
  return { manager, logged, stuckCalls: () => stuckCalls }
}
const alive = () => told().filter((line) => line.includes('WATCHDOG=1')).length

test('it tells when the process is ready and when it drains, and in between that it is alive', async () => {
  const { manager } = open({ settings: settings(90) })
  manager.ready()
  await until('it says twice that it is alive', () => alive() >= 2)
  manager.stopping()
  await until('it says that it stops', () => told().some((line) => line.includes('STOPPING=1')))
  expect(told()[0]).toBe('/run/notify READY=1 STATUS=working')
})

test('no sign of life before it is ready, and none without a watchdog', async () => {
  const { manager } = open({ settings: settings(30) })
  let looks = 0
  const other = openServiceManager({
    settings: null,
    log: pino({ enabled: false }),
    stuck: () => {
      looks++
      return null
    },
    onStuck: () => {},
    command,
  })
  await until('another one has looked twice', () => looks >= 2)
  other.close()
  expect(told()).toEqual([])
  manager.close()

  const silent = open({ settings: settings(null) })
  silent.manager.ready()
  await until('it is ready', () => told().length === 1)
  silent.manager.stopping()
  await until('it stops', () => told().length === 2)
  expect(alive()).toBe(0)
})

test('a process that gets nowhere gives no sign of life any more, says why, and is told to end once', async () => {
  let reason: string | null = null
  const { manager, logged, stuckCalls } = open({ settings: settings(90), stuck: () => reason })
  manager.ready()
  await until('it says that it is alive', () => alive() >= 1)
  reason = 'every run hangs'
  await until('it was told to end', () => stuckCalls() > 0)
  await until('it says why', () => told().at(-1)?.includes('STATUS=stuck: every run hangs') ?? false)
  const before = alive()
  manager.stopping()
  await until('it says that it stops', () => told().some((line) => line.includes('STOPPING=1')))
  expect([alive(), stuckCalls(), logged]).toEqual([before, 1, ['this process gets nowhere; it ends itself']])
})

test('what is seen once only, as after a freeze, is no reason', async () => {
  let looks = 0
  const { stuckCalls } = open({ settings: settings(90), stuck: () => (looks++ === 0 ? 'looked too early' : null) })
  await until('it has looked again', () => looks >= 3)
  expect(stuckCalls()).toBe(0)
})

test('without a manager nothing is told, and a process that gets nowhere still ends', async () => {
  const { manager, stuckCalls } = open({ settings: null, stuck: () => 'nothing moves' })
  manager.ready()
  await until('it was told to end', () => stuckCalls() === 1)
  expect(told()).toEqual([])
})

test('a program that is not there is told of once, and hurts nobody', async () => {
  const { manager, logged } = open({ settings: settings(30), command: path.join(directory, 'missing') })
  manager.ready()
  await until('it is told of', () => logged.length > 0)
  manager.stopping()
  manager.stopping()
  expect(new Set(logged)).toEqual(new Set(['the service manager could not be told']))
  expect(logged).toHaveLength(1)
})

test('the settings are those of the process that is meant', () => {
  const read = (env: Record<string, string>) =>
    loadConfig({ DATABASE_URL: 'postgres://u@h/d', ...env }, 'worker').serviceManager
  const socket = { NOTIFY_SOCKET: '@abstract', PATH: '/bin' }
  expect(read({})).toBeNull()
  expect(read({ NOTIFY_SOCKET: 'vsock:2:1' })).toBeNull()
  expect(read(socket)).toEqual({ socket: '@abstract', watchdogMs: null, path: '/bin' })
  expect(read({ ...socket, WATCHDOG_USEC: '30000000' })?.watchdogMs).toBe(30_000)
  expect(read({ ...socket, WATCHDOG_USEC: '30000000', WATCHDOG_PID: String(process.pid) })?.watchdogMs).toBe(30_000)
  for (const other of [
    { WATCHDOG_USEC: '30000000', WATCHDOG_PID: '1' },
    { WATCHDOG_USEC: '0' },
    { WATCHDOG_USEC: 'soon' },
    { WATCHDOG_USEC: '-5' },
  ]) {
    expect(read({ ...socket, ...other })?.watchdogMs).toBeNull()
  }
})
