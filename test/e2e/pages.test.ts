import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  DESKTOP,
  expectAccessible,
  expectNoOverflow,
  openBrowser,
  PHONE,
  type VisitOptions,
  type Visitor,
  visit,
} from './harness/browser.ts'
import { takePicture } from './harness/images.ts'
import { openStack, people, type Stack } from './harness/stack.ts'

/** Each page with everything on it: on a phone nothing is wider than the window, and axe finds nothing serious. */
let stack: Stack
let browser: Browser
const ids = { running: '', doubtful: '', failed: '', incident: '' }

/** Without a space, and as long as keys may get in practice. */
const LONG_KEY = `customer/${'0123456789abcdef'.repeat(8)}`

beforeAll(async () => {
  const [opened, launched] = await Promise.all([openStack(), openBrowser()])
  stack = opened
  browser = launched
  stack.provider.setLookup('unknown')
  const doubtful = [
    ...people(12),
    { key: LONG_KEY, mode: 'reset' },
    { key: 'user-ana', mode: 'reset' },
    { key: 'user-bob', mode: 'reject' },
  ]
  ids.doubtful = (await stack.submit('grant-role', doubtful, `a reason of some length: ${'and more '.repeat(20)}`)).id
  ids.failed = (
    await stack.submit(
      'send-notice',
      [...people(3), { key: LONG_KEY, mode: 'busy' }, { key: 'x', mode: 'conflict' }],
      'notices',
    )
  ).id
  await Promise.all([
    stack.untilStatus(ids.doubtful, 'reconciliation_required'),
    stack.untilStatus(ids.failed, 'partially_succeeded'),
  ])
  ids.running = (await stack.submit('grant-role', people(5_000, { delayMs: 2_000 }), 'a long one')).id
  await stack.untilStatus(ids.running, 'running')
  const { items } = await stack.call<{ items: { id: string }[] }>('GET', '/incidents')
  ids.incident = items[0]?.id ?? ''
})
afterAll(async () => {
  await browser.close()
  await stack.close()
})

type Walk = (visitor: Visitor) => Promise<void>
const open =
  (path: () => string, ready: string | RegExp, then: Walk = async () => {}): Walk =>
  async (visitor) => {
    await visitor.page.goto(path())
    await visitor.page.getByText(ready).first().waitFor()
    await then(visitor)
  }
const press = (visitor: Visitor, name: string) => visitor.page.getByRole('button', { name }).first().click()

/** By what is on them in English or Korean, after all that can be opened on them is open. */
const PAGES: readonly [name: string, walk: Walk][] = [
  ['today', open(() => '/console', 'grant-role')],
  ['operations', open(() => '/console/operations', ids.running)],
  [
    'operations-filtered',
    open(() => '/console/operations?status=running,failed&label.team=a', /Nothing here|항목이 없습니다/),
  ],
  ['operations-by-item', open(() => `/console/operations?item_key=${encodeURIComponent(LONG_KEY)}`, ids.doubtful)],
  ['operation-running', open(() => `/console/operations/${ids.running}`, 'grant-role')],
  ['operation-doubtful', open(() => `/console/operations/${ids.doubtful}?shards_cursor=`, LONG_KEY)],
  ['item', open(() => `/console/operations/${ids.doubtful}/items/${encodeURIComponent(LONG_KEY)}`, LONG_KEY)],
  ['replay', open(() => `/console/operations/${ids.doubtful}/replay`, ids.doubtful)],
  ['reconciliation', open(() => '/console/reconciliation', LONG_KEY)],
  ['incidents', open(() => '/console/incidents', 'send-notice')],
  ['incident', open(() => `/console/incidents/${ids.incident}`, LONG_KEY)],
  ['types', open(() => '/console/types', 'send-notice')],
  ['workers', open(() => '/console/workers', /active|활성/)],
  ['no-such-operation', open(() => '/console/operations/op_00000000000000000000000000000000', 'operation-not-found')],
  ['no-such-page', open(() => '/console/nowhere', /./)],
]

/** The forms, which are English here: their buttons are found by their words. */
const FORMS: readonly [name: string, walk: Walk][] = [
  [
    'cancel-form',
    open(
      () => `/console/operations/${ids.running}`,
      'Cancel…',
      (visitor) => press(visitor, 'Cancel…'),
    ),
  ],
  [
    'preflight',
    open(
      () => `/console/operations/${ids.doubtful}/replay`,
      'Run the preflight',
      async (visitor) => {
        await visitor.page.getByRole('radio', { name: 'Chosen' }).check()
        await press(visitor, 'Run the preflight')
        await visitor.page.getByText('The replay is blocked').waitFor()
      },
    ),
  ],
  [
    'evidence-form',
    open(
      () => '/console/reconciliation',
      LONG_KEY,
      async (visitor) => {
        await visitor.page.getByRole('checkbox', { name: `Choose: ${LONG_KEY}` }).check()
        await press(visitor, 'Resolve with evidence…')
        await visitor.page.getByRole('radio', { name: 'It was not applied' }).check()
      },
    ),
  ],
  [
    'kill-switch',
    open(
      () => '/console/types',
      'Stop all work…',
      (visitor) => press(visitor, 'Stop all work…'),
    ),
  ],
  [
    'caller',
    open(
      () => '/console/workers',
      'Who you are',
      (visitor) => press(visitor, 'Who you are'),
    ),
  ],
]

const walk = async (
  options: VisitOptions,
  pages: typeof PAGES,
  check: (visitor: Visitor, name: string) => Promise<void>,
) => {
  const visitor = await visit(browser, stack.url, options)
  for (const [name, go] of pages) {
    await go(visitor)
    await check(visitor, name)
  }
  expect(visitor.faults).toEqual([])
  await visitor.close()
}

describe.each([
  ['English', 'en-GB', [...PAGES, ...FORMS]],
  ['Korean', 'ko-KR', PAGES],
] as const)('%s', (_language, locale, pages) => {
  test('on a phone no page is wider than the window', () =>
    walk({ viewport: PHONE, locale }, pages, async ({ page }, name) => {
      await expectNoOverflow(page, name)
      await takePicture(page, `pages/phone-${name}-${locale}`)
    }))
})

describe.each(['light', 'dark'] as const)('%s', (colorScheme) => {
  test.each([
    ['a desk', DESKTOP],
    ['a phone', PHONE],
  ])('axe finds nothing serious on %s', (_place, viewport) =>
    walk({ viewport, colorScheme }, [...PAGES, ...FORMS], async ({ page }, name) => {
      await expectAccessible(page, `${name}, ${colorScheme}, ${viewport.width} px`)
      if (colorScheme === 'dark' && viewport === DESKTOP) await takePicture(page, `pages/dark-${name}`)
    }),
  )
})

test('the language is that of the browser, and can be changed', async () => {
  const { page, close } = await visit(browser, stack.url, { locale: 'ko-KR' })
  await page.goto('/console')
  await page.getByRole('heading', { level: 1, name: '오늘' }).waitFor()
  expect(await page.evaluate('document.documentElement.lang')).toBe('ko')
  await page.getByRole('banner').getByRole('combobox').selectOption('en')
  await page.getByRole('heading', { level: 1, name: 'Today' }).waitFor()
  await page.reload()
  await page.getByRole('heading', { level: 1, name: 'Today' }).waitFor()
  await close()
})
