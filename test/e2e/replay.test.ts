import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { openBrowser, type Visitor, visit } from './harness/browser.ts'
import { takePicture } from './harness/images.ts'
import { openStack, people, type Stack } from './harness/stack.ts'

/** A replay as it has to go: blocked, explained, approved by a second person, done. And from an incident. */
let stack: Stack
let browser: Browser
let visitor: Visitor
let page: Page

beforeAll(async () => {
  const [opened, launched] = await Promise.all([openStack(), openBrowser()])
  stack = opened
  browser = launched
  stack.provider.setLookup('unknown')
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

/** Who acts from now on; without keys a name is enough. */
const actAs = async (name: string): Promise<void> => {
  await page.getByRole('banner').getByRole('button').click()
  await page.getByLabel('Name (only where no key is needed)').fill(name)
  await page.getByRole('button', { name: 'Use it' }).click()
  await page.getByRole('banner').getByRole('button', { name }).waitFor()
}
const runPreflight = () => page.getByRole('button', { name: /^Run the preflight/ }).click()
const replayButton = () => page.getByRole('button', { name: /^Replay \d/ })

test('a preflight is blocked by a doubt, the doubt is resolved, a second person approves, and only the rest is sent', async () => {
  const items = [...people(60), { key: 'user-ana', mode: 'apply_then_reset' }, { key: 'user-bob', mode: 'busy_once' }]
  const { id } = await stack.submit('grant-role', items, 'roles of spring')
  await stack.untilStatus(id, 'reconciliation_required')

  await page.goto(`/console/operations/${id}`)
  await actAs('mia')
  await page.getByRole('link', { name: 'Replay…' }).click()
  // nothing can be pressed before the preflight is there
  await page.getByRole('button', { name: 'Run the preflight' }).waitFor()
  expect(await replayButton().count()).toBe(0)
  await runPreflight()
  await page.getByText('The replay is blocked').waitFor()
  await page.getByText('This cannot be forced.').waitFor()
  await page.getByLabel('Reason', { exact: true }).fill('a reason does not help')
  expect(await replayButton().isDisabled()).toBe(true)
  await takePicture(page, 'replay-blocked')

  await page.getByRole('link', { name: 'Open the reconciliation queue of this operation' }).click()
  await page.getByRole('checkbox', { name: 'Choose: user-ana' }).check()
  await page.getByRole('button', { name: 'Resolve with evidence…' }).click()
  await page.getByRole('radio', { name: 'It was applied' }).check()
  await page.getByLabel('Evidence (a ticket, a provider id, a link)').fill('directory audit log')
  await page.getByRole('button', { name: 'Resolve the case' }).click()
  await page.getByText('1 resolved, 0 refused').waitFor()
  await stack.untilStatus(id, 'partially_succeeded')

  await page.goto(`/console/operations/${id}/replay`)
  await runPreflight()
  await page.getByText('Nothing forbids the replay').waitFor()
  await page.getByRole('row', { name: 'Will be sent again 1' }).waitFor()
  await page.getByRole('row', { name: 'Confirmed, not touched 61' }).waitFor()
  await page.getByText('The new operation then waits until a second person approves it.').waitFor()
  expect(await replayButton().isDisabled()).toBe(true)
  await page.getByLabel('Reason', { exact: true }).fill('the directory was busy')
  await takePicture(page, 'replay-allowed', { fullPage: true })
  await replayButton().click()

  await page.locator('.standing', { hasText: 'Waiting for a second person to approve' }).waitFor()
  const replayId = page.url().split('/').at(-1) ?? ''
  await page.getByRole('button', { name: 'Approve…' }).click()
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await page.getByRole('alert').getByText('self-approval', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Back' }).click()

  await actAs('noa')
  await page.getByRole('button', { name: 'Approve…' }).click()
  await page.getByLabel('Note').fill('seen the preflight')
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await page.locator('.standing', { hasText: 'Done: 1 applied' }).waitFor()

  const replayed = await stack.read(replayId)
  expect(replayed).toMatchObject({ status: 'succeeded', replay_of: id, approval: { decided_by: 'noa' } })
  const requests = Object.entries(stack.provider.entries()).map(([key, entry]) => [
    key.split(':').at(-1),
    entry.requests,
  ])
  expect(requests.filter(([, count]) => count !== 1)).toEqual([['user-bob', 2]])
})

test('an incident: one cause of many dead letters, said to be mended, and its items replayed', async () => {
  const broken = people(6, { mode: 'busy_once' })
  const { id } = await stack.submit('send-notice', [...people(200).slice(6), ...broken], 'notices of spring')
  await stack.untilStatus(id, 'partially_succeeded')

  await page.goto('/console')
  const alarm = page.getByRole('listitem').filter({ hasText: 'send-notice: Dead letters 6' })
  await alarm.getByRole('link', { name: 'Look at it' }).click()
  await page.getByText('6 open of 6 dead letters').waitFor()
  await takePicture(page, 'incidents')
  await page.getByRole('rowheader').getByRole('link').click()
  await page.getByRole('heading', { name: 'Dead letters', exact: true }).waitFor()
  await page.getByText('transient').first().waitFor()

  await page.getByRole('button', { name: 'Resolve…' }).click()
  await page.getByLabel(/^Mended in/).fill('mail 2.1')
  // without a reason the browser itself holds it back
  await page.getByRole('button', { name: 'Say that the cause is mended' }).click()
  expect(await page.getByLabel('Reason', { exact: true }).evaluate((field) => field.matches(':invalid'))).toBe(true)
  await page.getByLabel('Reason', { exact: true }).fill('the mail server has room again')
  await page.getByRole('button', { name: 'Say that the cause is mended' }).click()

  await page.getByRole('heading', { name: 'What to replay now, oldest operation first' }).waitFor()
  await page
    .getByText(/6 items/)
    .first()
    .click()
  await runPreflight()
  await page.getByRole('row', { name: 'Will be sent again 6' }).waitFor()
  await page.locator('form').getByLabel('Reason', { exact: true }).fill('the mail server has room again')
  await replayButton().click()
  await page.getByRole('heading', { name: 'Operation send-notice' }).waitFor()
  const replayId = page.url().split('/').at(-1) ?? ''
  const replayed = await stack.untilStatus(replayId, 'succeeded')
  expect(replayed.counts).toMatchObject({ total: 6, applied: 6 })
  await page.locator('.standing', { hasText: 'Done: 6 applied' }).waitFor()
})
