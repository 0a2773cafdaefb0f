import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createApiKey } from '../../src/services/api-keys.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { openBrowser, visit } from './harness/browser.ts'
import { openStack, type Stack } from './harness/stack.ts'

let stack: Stack
let browser: Browser
let key: string

beforeAll(async () => {
  const [opened, launched] = await Promise.all([openStack({ auth: 'keys' }), openBrowser()])
  stack = opened
  browser = launched
  const database = openDatabase({ url: stack.database.url, size: 1, name: 'e2e keys' })
  const made = await createApiKey(database, {
    name: 'night shift',
    scopes: ['operations:read', 'ledger:read'],
    expiresInDays: null,
  })
  key = made.key
  await database.close()
})
afterAll(async () => {
  await browser.close()
  await stack.close()
})

test('with AUTH=keys the page asks for a key, keeps it in its tab only, and shows what the key may not do', async () => {
  const { page, faults, close } = await visit(browser, stack.url)
  await page.goto('/console/types')
  await page.getByText('This service asks for an API key.').waitFor()
  await page.getByLabel('API key').fill('opl_wrong')
  await Promise.all([
    page.waitForResponse((response) => response.status() === 401),
    page.getByRole('button', { name: 'Use it' }).click(),
  ])
  await page.getByText('The service does not know this key, or it has ended.').waitFor()

  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Use it' }).click()
  await page.getByRole('heading', { name: /^grant-role/ }).waitFor()
  expect(page.url()).not.toContain('opl_')
  expect(await page.evaluate('JSON.stringify(localStorage) + document.cookie')).not.toContain('opl_')

  await page.reload()
  await page.getByRole('heading', { name: /^grant-role/ }).waitFor()
  // it may only read: the refusal stands in the form, with the words of the API
  const type = page.getByRole('region', { name: 'grant-role' })
  await type.getByRole('button', { name: 'Stop all work…' }).click()
  await type.getByRole('button', { name: 'Stop it' }).click()
  await type.getByRole('alert').getByText('forbidden', { exact: true }).waitFor()

  const other = await page.context().newPage()
  await other.goto('/console')
  await other.getByText('This service asks for an API key.').waitFor()
  expect(faults).toEqual([])
  await close()
})

test('the page is open to everybody, under a policy that allows nothing from elsewhere, and its files never change', async () => {
  const read = async (path: string, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${stack.url}${path}`, { headers })
  const page = await read('/console/operations/op_1?status=failed')
  expect([page.status, page.headers.get('cache-control')]).toEqual([200, 'no-cache'])
  const policy = page.headers.get('content-security-policy') ?? ''
  expect(policy).toContain("default-src 'none'")
  expect(policy).not.toMatch(/unsafe|https?:|\*|data:/)
  const html = await page.text()
  const files = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, file = '']) => file)
  expect(files.length).toBeGreaterThan(2)
  for (const file of files) {
    expect(file).toMatch(/^\/console\/assets\//)
    const answer = await read(file)
    expect([answer.status, answer.headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable'])
    const again = await read(file, { 'if-none-match': answer.headers.get('etag') ?? '' })
    expect(again.status).toBe(304)
  }
  const gone = await read('/console/assets/index-gone.js')
  expect(gone.status).toBe(404)
  expect(gone.headers.get('content-type')).toMatch(/^application\/problem\+json/)
})
