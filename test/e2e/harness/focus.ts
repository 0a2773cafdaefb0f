import type { Page } from 'playwright-core'

/** Noted in the moment in which the form comes into the document: what takes the focus later has lost keys until then. */
const NOTE_FOCUS = `window.focusedWhenShown = new Promise((resolve) => {
  const observer = new MutationObserver(() => {
    const form = document.querySelector('form.action-form')
    if (form === null) return
    observer.disconnect()
    resolve(form.contains(document.activeElement) ? document.activeElement.localName : 'outside of the form')
  })
  observer.observe(document.body, { childList: true, subtree: true })
})
undefined`

/** Which element has the focus when the form that `open` opens is shown. */
export const focusedWhenShown = async (page: Page, open: () => Promise<void>): Promise<string> => {
  await page.evaluate(NOTE_FOCUS)
  await open()
  return (await page.evaluate('window.focusedWhenShown')) as string
}
