import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { ConfigurationError } from '../../src/domain/errors.ts'
import { parseWebhookSecrets } from '../../src/domain/webhook.ts'
import { ensureWebhookSecret } from '../../src/embedded/webhook-secret.ts'

const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-webhook-secret-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

it('is made once, for nobody else to read, and whole', () => {
  const dataDir = path.join(root, 'new', 'data')
  const file = ensureWebhookSecret(dataDir)
  const secret = readFileSync(file, 'utf8')
  expect(parseWebhookSecrets(secret)).toHaveLength(1)
  expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(ensureWebhookSecret(dataDir)).toBe(file)
  expect(readFileSync(file, 'utf8')).toBe(secret)
  expect(readdirSync(dataDir)).toEqual(['webhook-secret'])
  expect(parseWebhookSecrets(readFileSync(ensureWebhookSecret(path.join(root, 'other')), 'utf8'))).not.toEqual(
    parseWebhookSecrets(secret),
  )
})

it('one line says where it cannot be made', () => {
  const file = path.join(root, 'file')
  writeFileSync(file, '')
  expect(() => ensureWebhookSecret(file)).toThrow(ConfigurationError)
  expect(() => ensureWebhookSecret(file)).toThrow(/^OPLEDGER_DATA_DIR: cannot write .*webhook-secret \(\w+\)$/)
})
