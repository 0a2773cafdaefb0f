import axe from 'axe-core'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core'
import { expect, inject } from 'vitest'
import { isRoot } from './chromium.ts'

/** Of one step; the machine may be busy with other things. */
const STEP_MS = 60_000

export const DESKTOP = { width: 1_100, height: 760 }
/** CSS pixels of a usual phone. */
export const PHONE = { width: 390, height: 844 }

export interface Visitor {
  page: Page
  /** What no page of ours may do: errors in scripts, breaches of its policy, requests to other origins. */
  faults: readonly string[]
  close(): Promise<void>
}

export interface VisitOptions {
  viewport?: { width: number; height: number }
  colorScheme?: 'light' | 'dark'
  /** As the browser is set up; the console follows it. */
  locale?: 'en-GB' | 'ko-KR'
}

export const openBrowser = (): Promise<Browser> =>
  chromium.launch({
    executablePath: inject('chromium'),
    // its sandbox refuses to work for root, who is all there is in many containers
    args: isRoot() ? ['--no-sandbox'] : [],
  })

/** A browser window of its own, with nothing kept from others. */
export const visit = async (
  browser: Browser,
  baseURL: string,
  { viewport = DESKTOP, colorScheme = 'light', locale = 'en-GB' }: VisitOptions = {},
): Promise<Visitor> => {
  const isPhone = viewport.width < 500
  const context = await browser.newContext({
    baseURL,
    viewport,
    colorScheme,
    locale,
    timezoneId: 'UTC',
    reducedMotion: 'reduce',
    isMobile: isPhone,
    hasTouch: isPhone,
  })
  context.setDefaultTimeout(STEP_MS)
  const page = await context.newPage()
  return { page, faults: watchFaults(context, page, baseURL), close: () => context.close() }
}

const watchFaults = (context: BrowserContext, page: Page, baseURL: string): string[] => {
  const faults: string[] = []
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`))
  page.on('console', (message) => {
    // answers that refuse are part of some walks, and the page shows them
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      faults.push(`console: ${message.text()}`)
  })
  context.on('request', (request) => {
    if (!request.url().startsWith(`${baseURL}/`)) faults.push(`request to ${request.url()}`)
  })
  context.on('response', (response) => {
    if (response.status() >= 500) faults.push(`${response.status()} from ${response.url()}`)
  })
  return faults
}

interface AxeViolation {
  id: string
  impact: string | null
  nodes: { html: string; failureSummary: string }[]
}

/** By every rule that axe has; what is minor or moderate is advice, what is serious keeps somebody out. */
export const expectAccessible = async (page: Page, where: string): Promise<void> => {
  // evaluated by the debugger: the page's own policy would forbid it
  await page.evaluate(axe.source)
  const violations = (await page.evaluate('axe.run(document).then(({ violations }) => violations)')) as AxeViolation[]
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  expect(
    serious.map(({ id, nodes }) => ({ where, id, nodes: nodes.map((node) => [node.html, node.failureSummary]) })),
  ).toEqual([])
}

/** What reaches over the right edge of the window; what scrolls or is cut off in its own box does not. */
const OVERFLOWING = `(() => {
  const width = document.documentElement.clientWidth
  if (document.documentElement.scrollWidth <= width) return []
  const wide = [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > width + 0.5)
  return [document.documentElement.scrollWidth + ' of ' + width, ...wide.slice(-3).map((one) => one.outerHTML.slice(0, 200))]
})()`

export const expectNoOverflow = async (page: Page, where: string): Promise<void> => {
  const overflowing = (await page.evaluate(OVERFLOWING)) as string[]
  expect({ where, overflowing }).toEqual({ where, overflowing: [] })
}
