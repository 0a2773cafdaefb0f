import { defineConfig } from 'vitest/config'

/** Only what is fast and needs no database: Stryker runs it once for each mutant. */
export default defineConfig({
  test: {
    include: ['test/unit/**/*.test.ts'],
    // far above what any of them takes: on a busy machine a mutant must not look killed
    testTimeout: 10_000,
  },
})
