import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { openBrowser, type Visitor, visit } from './harness/browser.ts'
import { focusedWhenShown } from './harness/focus.ts'
import { takePicture } from './harness/images.ts'
import { openStack, people, type Stack } from './harness/stack.ts'

/** The operator at night: an effect is in doubt, is found, and is closed with evidence. */
let stack: Stack
let browser: Browser
let visitor: Visitor
let page: Page

interface Case {
  id: string
  item_key: string
  status: string
  resolution: { resolution: string; evidence_ref: string | null; resolved_by: string | null } | null
}
const casesOf = async (operationId: string): Promise<Case[]> =>
  (await stack.call<{ items: Case[] }>('GET', `/reconciliation?operation_id=${operationId}`)).items

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

const row = (key: string) => page.getByRole('row', { name: new RegExp(`\\b${key}\\b`) })

test('an uncertain item is found from the first page on, and resolved with evidence', async () => {
  const items = [...people(60), { key: 'user-ana', mode: 'apply_then_reset' }]
  const { id } = await stack.submit('grant-role', items, 'roles of spring')
  await stack.untilStatus(id, 'reconciliation_required')

  await page.goto('/console')
  const alarms = page.getByRole('region', { name: /need/ })
  await alarms.getByText('grant-role: Uncertain items').waitFor()
  await takePicture(page, 'today')
  await alarms
    .getByRole('listitem')
    .filter({ hasText: 'Uncertain items' })
    .getByRole('link', { name: 'Look at it' })
    .click()
  await row('user-ana').getByText('sent, but no answer that tells the outcome').waitFor()
  await row('user-ana')
    .getByText(/of 24 h/)
    .waitFor()

  await row('user-ana').getByRole('button', { name: 'Ask the provider now' }).click()
  await row('user-ana').getByText('The provider was asked.').waitFor()
  await row('user-ana').getByRole('checkbox').check()
  const open = () => page.getByRole('button', { name: 'Resolve with evidence…' }).click()
  expect(await focusedWhenShown(page, open)).toBe('input')
  await page.getByRole('radio', { name: 'It was applied' }).check()
  await page.getByLabel('Evidence (a ticket, a provider id, a link)').fill('directory audit log, line 4711')
  await page.getByLabel('Reference of the effect at the provider').fill('grant-4711')
  await takePicture(page, 'reconciliation')
  await page.getByRole('button', { name: 'Resolve the case' }).click()
  await page.getByText('1 resolved, 0 refused').waitFor()
  await page.getByText('No effect is in doubt.').waitFor()

  const operation = await stack.untilStatus(id, 'succeeded')
  expect(operation.counts).toMatchObject({ applied: 61, uncertain: 0 })
  const [closed] = await casesOf(id)
  expect(closed?.resolution).toMatchObject({
    ...{ resolution: 'applied', evidence_ref: 'directory audit log, line 4711', resolved_by: 'dev' },
  })
})

test('several are closed with one evidence; of those that somebody else closed first, the page says so', async () => {
  const items = ['ben', 'eva', 'kim'].map((key) => ({ key, mode: 'reset' }))
  const { id } = await stack.submit('grant-role', [...people(2), ...items], 'roles of summer')
  await stack.untilStatus(id, 'reconciliation_required')
  await page.goto(`/console/reconciliation?operation_id=${id}`)
  await page.getByRole('checkbox', { name: 'Choose all open ones on this page' }).check()
  await page.getByText('3 cases chosen').waitFor()
  await page.getByRole('button', { name: 'Resolve with evidence…' }).click()
  await page.getByRole('radio', { name: 'It was not applied' }).check()
  await page.getByLabel('Evidence (a ticket, a provider id, a link)').fill('INC-12')

  // the list is read every few seconds; what is held back here is how the page would not know yet
  await page.route(/\/reconciliation\?/, () => {})
  const eva = (await casesOf(id)).find(({ item_key }) => item_key === 'eva')
  await stack.call('POST', `/reconciliation/${eva?.id}/resolve`, { resolution: 'applied', evidence_ref: 'seen' }, 'lee')
  await page.getByRole('button', { name: 'Resolve 3 cases' }).click()
  await page.getByText('2 resolved, 1 refused').waitFor()
  await page.getByRole('alert').getByText('case-already-resolved', { exact: true }).waitFor()
  await page.unroute(/\/reconciliation\?/)

  const operation = await stack.untilStatus(id, 'partially_succeeded')
  expect(operation.counts).toMatchObject({ applied: 3, failed: 2, uncertain: 0 })
})

test('what was not applied is sent again when the person says so', async () => {
  const { id } = await stack.submit('grant-role', [{ key: 'zoe', mode: 'reset_once' }], 'one role')
  await stack.untilStatus(id, 'reconciliation_required')
  await page.goto(`/console/operations/${id}`)
  await page.getByRole('link', { name: 'Check the effect in doubt' }).click()
  await row('zoe').getByRole('checkbox').check()
  await page.getByRole('button', { name: 'Resolve with evidence…' }).click()
  await page.getByRole('radio', { name: 'It was not applied' }).check()
  await page.getByRole('checkbox', { name: /^Send it again/ }).check()
  await page.getByLabel('Evidence (a ticket, a provider id, a link)').fill('not in the directory')
  await page.getByRole('button', { name: 'Resolve the case' }).click()
  await stack.untilStatus(id, 'succeeded')
  expect(Object.values(stack.provider.entries()).filter(({ requests }) => requests === 2)).toHaveLength(1)

  // its whole story: sent, doubted, closed by a person, sent again
  await page.goto(`/console/operations/${id}/items/zoe`)
  await page.getByText('a person').first().waitFor()
  await page.getByText('applied').first().waitFor()
})
