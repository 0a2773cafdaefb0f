import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { loadConfig } from '../../src/config.ts'
import { ConfigurationError } from '../../src/domain/errors.ts'
import { keepSecret } from '../../src/embedded/kept-secret.ts'

const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-kept-secret-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const run = promisify(execFile)

describe.each([
  ['download-secret', 'OPLEDGER_DOWNLOAD_SECRET_FILE'],
  ['webhook-secret', 'OPLEDGER_WEBHOOK_SECRET_FILE'],
] as const)('%s', (name, key) => {
  it('is made once, for nobody else to read, and whole', () => {
    const dataDir = path.join(root, name, 'new', 'data')
    const file = keepSecret(dataDir, name)
    const secret = readFileSync(file, 'utf8')
    expect(path.basename(file)).toBe(name)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(keepSecret(dataDir, name)).toBe(file)
    expect(readFileSync(file, 'utf8')).toBe(secret)
    expect(readdirSync(dataDir)).toEqual([name])
    expect(readFileSync(keepSecret(path.join(root, name, 'other'), name), 'utf8')).not.toBe(secret)
  })

  it('is what the configuration takes from a file', () => {
    const file = keepSecret(path.join(root, name, 'taken'), name)
    const { downloadSecret, webhookSecrets } = loadConfig({ [key]: file }, 'start')
    expect([downloadSecret, ...webhookSecrets].filter((secret) => secret !== null)).toHaveLength(1)
  })

  it('is the same for all starts that come at once', async () => {
    const dataDir = path.join(root, name, 'race')
    const module = new URL('../../src/embedded/kept-secret.ts', import.meta.url)
    const script = `const { keepSecret } = await import(process.argv[1]);
      const { readFileSync } = await import('node:fs');
      process.stdout.write(readFileSync(keepSecret(process.argv[2], process.argv[3]), 'utf8'))`
    const args = ['--import', 'tsx', '--input-type=module', '-e', script, '--', module.href, dataDir, name]
    const seen = await Promise.all([1, 2, 3].map(() => run(process.execPath, args)))
    expect(new Set(seen.map(({ stdout }) => stdout)).size).toBe(1)
    expect(seen[0]?.stdout).toBe(readFileSync(path.join(dataDir, name), 'utf8'))
    expect(readdirSync(dataDir)).toEqual([name])
  }, 60_000)

  it('is not what a crash left behind under another name', () => {
    const dataDir = path.join(root, name, 'crashed')
    const file = keepSecret(dataDir, name)
    rmSync(file)
    writeFileSync(`${file}.draft`, 'half')
    expect(readFileSync(keepSecret(dataDir, name), 'utf8').length).toBeGreaterThan(40)
  })

  it('that is not whole stops the start', () => {
    const dataDir = path.join(root, name, 'short')
    const file = keepSecret(dataDir, name)
    writeFileSync(file, 'hunter2')
    expect(() => keepSecret(dataDir, name)).toThrow(ConfigurationError)
    expect(() => keepSecret(dataDir, name)).toThrow(/^OPLEDGER_DATA_DIR: [^\n]*-secret holds no whole secret: [^2]*$/)
  })

  it('one line says where it cannot be kept', () => {
    const file = path.join(root, `${name}.file`)
    writeFileSync(file, '')
    expect(() => keepSecret(file, name)).toThrow(ConfigurationError)
    expect(() => keepSecret(file, name)).toThrow(/^OPLEDGER_DATA_DIR: \S+-secret cannot be used \(\w+\)$/)
  })
})
