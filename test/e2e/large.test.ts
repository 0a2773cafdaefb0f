import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { openBrowser, type Visitor, visit } from './harness/browser.ts'
import { FAILED, OPERATIONS, OUTCOMES, plantLarge, UNCERTAIN } from './harness/large.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { E2E_TYPES } from './harness/types.ts'

/**
 * The console beside 100,000 operations and an operation of a million items. Each step says how long it took; none may keep a
 * person waiting as if it read everything: that would be minutes here.
 */
const STEP_MS = 15_000

let stack: Stack
let browser: Browser
let visitor: Visitor
let page: Page
let id: string

beforeAll(async () => {
  const [opened, launched] = await Promise.all([openStack(), openBrowser()])
  stack = opened
  browser = launched
  const [type] = E2E_TYPES
  id = await plantLarge(stack.database.url, { name: String(type?.name), version: Number(type?.version) })
})
afterAll(async () => {
  await browser.close()
  await stack.close()
})
beforeEach(async () => {
  visitor = await visit(browser, stack.url)
  page = visitor.page
  page.setDefaultTimeout(STEP_MS)
})
afterEach(async () => {
  expect(visitor.faults).toEqual([])
  await visitor.close()
})

const step = async (name: string, act: () => Promise<unknown>): Promise<void> => {
  const startedAt = performance.now()
  await act()
  const tookMs = Math.round(performance.now() - startedAt)
  console.log(`${name}: ${tookMs} ms`)
  expect(tookMs, name).toBeLessThan(STEP_MS)
}
const rows = () => page.getByRole('row')

test(`${OPERATIONS} operations are listed, filtered, paged and searched`, async () => {
  await step('today', async () => {
    await page.goto('/console')
    await page.getByText('Uncertain items').first().waitFor()
  })
  await step('the newest operations', async () => {
    await page.goto('/console/operations')
    await page.getByText(id).first().waitFor()
  })
  expect(await rows().count()).toBeGreaterThan(50)
  await step('the next page', async () => {
    await page.getByRole('link', { name: /older|next/i }).click()
    await page.waitForURL(/cursor=/)
    await page.waitForURL(/cursor=/)
    await rows().nth(50).waitFor()
  })
  await step('those that failed', async () => {
    await page.goto('/console/operations?status=failed')
    await rows().nth(50).waitFor()
  })
  await step('by the key of an item', async () => {
    await page.goto('/console/operations?item_key=user-77')
    await page.getByText(id).first().waitFor()
  })
  await step('by the key of an effect', async () => {
    await page.goto('/console/operations?effect_key=big%3A77')
    await page.getByText(id).first().waitFor()
  })
})

test('an operation of a million items is read, and its rare items are found', async () => {
  await step('the operation', async () => {
    await page.goto(`/console/operations/${id}`)
    await page.getByText(/^(600,000|599,960) of 1,000,000 items have an outcome/).waitFor()
    await page.getByText('user-0', { exact: true }).first().waitFor()
  })
  await step('its failed items', async () => {
    await page.goto(`/console/operations/${id}?state=failed`)
    await page
      .getByText(`user-${OUTCOMES - UNCERTAIN - FAILED}`, { exact: true })
      .first()
      .waitFor()
  })
  await step('an item and its ledger', async () => {
    await page.goto(`/console/operations/${id}/items/user-599999`)
    await page.getByText('user-599999').first().waitFor()
  })
  await step('the reconciliation queue', async () => {
    await page.goto('/console/reconciliation')
    await page
      .getByText(/^user-5999[6-9]\d$/)
      .first()
      .waitFor()
  })
})
