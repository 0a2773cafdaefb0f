import { mkdirSync } from 'node:fs'
import path from 'node:path'
import type { Page } from 'playwright-core'

/**
 * The README's pictures are taken by these walks, when asked: `E2E_IMAGES=docs/images npm run test:e2e`. Otherwise every run
 * would change them, as the times in them are real.
 */
export const takePicture = async (page: Page, name: string, options: { fullPage?: boolean } = {}): Promise<void> => {
  const directory = process.env.E2E_IMAGES
  if (directory === undefined || directory === '') return
  mkdirSync(directory, { recursive: true })
  await page.screenshot({ path: path.join(directory, `${name}.png`), animations: 'disabled', ...options })
}
