import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { keepSecret } from '../../src/embedded/download-secret.ts'

const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-secret-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

it('is made once, kept for its owner alone, and the same for all who come at once', async () => {
  const data = path.join(directory, 'data')
  const secrets = await Promise.all([keepSecret(data), keepSecret(data)])
  expect(new Set([...secrets, await keepSecret(data)]).size).toBe(1)
  expect(secrets[0]).toMatch(/^[\w-]{43}$/)
  expect(statSync(path.join(data, 'download.secret')).mode & 0o777).toBe(0o600)
})

it('that is not whole stops the start', async () => {
  writeFileSync(path.join(directory, 'download.secret'), 'short')
  await expect(keepSecret(directory)).rejects.toThrow(/download\.secret holds no whole secret/)
})
