import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vite'

/** Everything into files of our own origin, none of it inline: the page is served under a policy that allows no more. */
export default defineConfig({
  root: fileURLToPath(new URL('.', import.meta.url)),
  base: '/console/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
})
