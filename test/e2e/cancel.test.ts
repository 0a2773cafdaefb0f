import { readFileSync } from 'node:fs'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { until } from '../support/processes.ts'
import { openBrowser, type Visitor, visit } from './harness/browser.ts'
import { focusedWhenShown } from './harness/focus.ts'
import { takePicture } from './harness/images.ts'
import { openStack, people, type Stack } from './harness/stack.ts'

/** Submit, watch, cancel: the person who pressed the wrong button. */
let stack: Stack
let browser: Browser
let visitor: Visitor
let page: Page

beforeAll(async () => {
  const [opened, launched] = await Promise.all([openStack(), openBrowser()])
  stack = opened
  browser = launched
})
afterAll(async () => {
  await browser.close()
  await stack.close()
})
beforeEach(async () => {
  visitor = await visit(browser, stack.url)
  page = visitor.page
})
afterEach(async () => {
  expect(visitor.faults).toEqual([])
  await visitor.close()
})

/** Slow enough that a person can change their mind. */
const SLOW = { delayMs: 400 }
const ITEMS = 2_000

const figures = (text: string | null): number[] =>
  [...(text ?? '').matchAll(/[\d,]+/g)].map(([n]) => Number(n.replaceAll(',', '')))

/** `2,300 applied` of the sentence that says how it stands. */
const appliedShown = async (): Promise<number> => {
  const [, count] = /([\d,]+) applied/.exec((await page.locator('.standing').textContent()) ?? '') ?? []
  return figures(count ?? '0')[0] ?? 0
}

test('what another client submits appears in the open list, is watched, and is cancelled with the keyboard alone', async () => {
  await page.goto('/console/operations')
  await page.getByText('Nothing here.').waitFor()
  const { id } = await stack.submit('grant-role', people(ITEMS, SLOW), 'CRM-991: roles of the new team')

  // nobody loaded the page again
  await page.getByRole('link', { name: 'grant-role' }).click()
  await page.getByRole('heading', { name: 'Operation grant-role' }).waitFor()
  await page.getByText('Events arrive as they happen.').waitFor()
  await page.locator('.badge', { hasText: 'running' }).first().waitFor()
  const before = await appliedShown()
  await until('the page shows more', async () => (await appliedShown()) > before)
  await page
    .getByText(/items\/s/)
    .first()
    .waitFor()
  await takePicture(page, 'operation-running')

  expect(await focusedWhenShown(page, () => pressByKeyboard('Cancel…'))).toBe('textarea')
  await page.getByText('A cancel promises: No new sends; sends in flight are collected.').waitFor()
  // what is typed is the reason
  await page.keyboard.type('Wrong team')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await page.locator('.standing', { hasText: 'Cancelled; what was processed stays' }).waitFor()

  const operation = await stack.untilStatus(id, 'cancelled')
  expect(operation.cancel).toMatchObject({ reason: 'Wrong team', requested_by: 'dev' })
  const { applied, unprocessed, total } = operation.counts
  expect([total, applied > 0, unprocessed > 0]).toEqual([ITEMS, true, true])
  const format = new Intl.NumberFormat('en')
  await page
    .locator('.standing', { hasText: `${format.format(applied)} applied, ${format.format(unprocessed)} not processed` })
    .waitFor()
  // what the page says was done is what the provider did
  expect(Object.keys(stack.provider.entries())).toHaveLength(applied)
  await page.getByText('Wrong team').first().waitFor()
  await page.getByText('Acknowledged by every worker').waitFor()
  await takePicture(page, 'operation-cancelled')

  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Items of this filter, CSV' }).click(),
  ])
  expect(download.suggestedFilename()).toBe(`${id}-items.csv`)
  const rows = readFileSync(await download.path(), 'utf8')
    .trim()
    .split('\n')
  expect(rows).toHaveLength(ITEMS + 1)
  expect(rows.filter((row) => row.includes('unprocessed'))).toHaveLength(unprocessed)
})

test('a cancel that comes too late is refused in the words of the API', async () => {
  const { id } = await stack.submit('grant-role', people(1, { delayMs: 1_500 }), 'one')
  await page.goto(`/console/operations/${id}`)
  await page.getByRole('button', { name: 'Cancel…' }).click()
  // from here on the page does not learn how it stands, as if the person had pressed in the same second
  await page.route(new RegExp(`/operations/${id}$`), () => {})
  await stack.untilStatus(id, 'succeeded')
  await page.getByRole('button', { name: 'Cancel the operation' }).click()
  await page.getByRole('alert').getByText('operation-already-final', { exact: true }).waitFor()
})

test('where streams are swallowed, events are asked for', async () => {
  await page.route('**/events', (route, request) =>
    request.headers().accept === 'text/event-stream' ? route.abort() : route.continue(),
  )
  const { id } = await stack.submit('grant-role', people(40, SLOW), 'no streams here')
  await page.goto(`/console/operations/${id}`)
  await page.getByText('Events are asked for every few seconds.').waitFor()
  await page.getByRole('heading', { name: 'Timeline' }).waitFor()
  await page.locator('.timeline .badge', { hasText: 'running' }).waitFor()
  await page.locator('.standing', { hasText: 'Done: 40 applied' }).waitFor()
})

/** Tab until the control has the focus, as somebody without a mouse would; then Enter. */
const pressByKeyboard = async (name: string): Promise<void> => {
  const control = page.getByRole('button', { name })
  for (let steps = 0; steps < 60; steps++) {
    await page.keyboard.press('Tab')
    if (await control.evaluate((element) => element === element.ownerDocument.activeElement)) {
      await page.keyboard.press('Enter')
      return
    }
  }
  throw new Error(`${name} cannot be reached with the keyboard`)
}
