import { defineConfig } from 'vitest/config'

/** What is fast and needs no database: Stryker runs it once for each mutant. */
const PARTS: Record<string, { include: string[]; exclude: string[]; isolate: boolean }> = {
  // no file of these mocks a module: they share one, so that a mutant costs milliseconds
  domain: { include: ['test/unit/**/*.test.ts'], exclude: ['test/unit/engine/**'], isolate: false },
  engine: { include: ['test/unit/engine/*.test.ts'], exclude: [], isolate: true },
}

export default defineConfig({
  test: {
    ...PARTS[process.env.MUTATED_PART ?? 'domain'],
    // far above what any of them takes: on a busy machine a mutant must not look killed
    testTimeout: 10_000,
  },
})
