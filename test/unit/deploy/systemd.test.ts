import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import { readRepositoryFile } from './files.ts'

/** `systemd-analyze verify` is part of deploy/check.sh; here stands what it cannot know. */
const settingsOf = (unit: string): Map<string, string[]> => {
  const settings = new Map<string, string[]>()
  for (const line of readRepositoryFile(`deploy/systemd/${unit}`).split('\n')) {
    const [, key, value] = /^([A-Za-z]+)=(.*)$/.exec(line) ?? []
    if (key !== undefined && value !== undefined) settings.set(key, [...(settings.get(key) ?? []), value])
  }
  return settings
}

const units = readdirSync(new URL('../../../deploy/systemd', import.meta.url)).filter((name) =>
  name.endsWith('.service'),
)
const watched = ['opledger-api.service', 'opledger-worker@.service']

test('there are units for the schema, the api and workers', () => {
  expect(units.sort()).toEqual(['opledger-api.service', 'opledger-migrate.service', 'opledger-worker@.service'])
})

test.each(watched)('%s is watched, revived, and drained', (unit) => {
  const one = (key: string): string | undefined => settingsOf(unit).get(key)?.join(' ')
  expect(one('Type')).toBe('notify')
  // the messages come from a program that the process starts
  expect(one('NotifyAccess')).toBe('all')
  expect(one('Restart')).toBe('always')
  expect(one('StartLimitIntervalSec')).toBe('0')
  // EXIT_CONFIGURATION
  expect(one('RestartPreventExitStatus')).toBe('78')
  // longer than the 30 s after which the process ends itself when its event loop stands still
  expect(one('WatchdogSec')).toBe('60s')
  // longer than the drain, 20 s
  expect(one('TimeoutStopSec')).toBe('30s')
  // the compiler of V8 writes code
  expect(one('MemoryDenyWriteExecute')).toBeUndefined()
  // systemd-notify speaks to a unix socket
  expect(one('RestrictAddressFamilies')).toContain('AF_UNIX')
})

test.each(units)('%s runs what is built, as nobody of importance, and its secrets are files', (unit) => {
  const settings = settingsOf(unit)
  expect(settings.get('User')).toEqual(['opledger'])
  expect(settings.get('ExecStart')?.[0]).toMatch(/^\/usr\/bin\/node dist\/(api|worker|cli)\.js/)
  expect(settings.get('ProtectSystem')).toEqual(['strict'])
  expect(settings.get('NoNewPrivileges')).toEqual(['yes'])
  const credentials = (settings.get('LoadCredential') ?? []).map((value) => value.split(':')[0])
  const files = (settings.get('Environment') ?? []).flatMap((value) => /=%d\/(.*)$/.exec(value)?.[1] ?? [])
  expect(files.sort()).toEqual(credentials.sort())
  expect(files).toHaveLength(3)
})
