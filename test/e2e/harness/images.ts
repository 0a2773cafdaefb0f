import { mkdirSync } from 'node:fs'
import path from 'node:path'
import type { Page } from 'playwright-core'

/**
 * The README's pictures are taken by these walks, when asked: `E2E_IMAGES=docs/images npm run test:e2e`. Otherwise every run
 * would change them, as the times in them are real. Below `pages` stands each page on a phone and in the dark; git does not keep them.
 */
export const takePicture = async (page: Page, name: string, options: { fullPage?: boolean } = {}): Promise<void> => {
  const directory = process.env.E2E_IMAGES
  if (directory === undefined || directory === '') return
  const file = path.join(directory, `${name}.png`)
  mkdirSync(path.dirname(file), { recursive: true })
  await page.screenshot({ path: file, animations: 'disabled', ...options })
}
