import { defineConfig } from 'vitest/config'

/** Walks through the console in a real browser, on the real service. One file at a time: each has processes of its own. */
export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    name: 'e2e',
    include: ['test/e2e/**/*.test.ts'],
    globalSetup: ['test/e2e/harness/global-setup.ts'],
    reporters: ['default', 'json'],
    outputFile: { json: 'e2e-results.json' },
    pool: 'forks',
    maxWorkers: 1,
    testTimeout: 240_000,
    hookTimeout: 240_000,
  },
})
