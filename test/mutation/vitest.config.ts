import { defineConfig } from 'vitest/config'

/** What is fast and needs no database: Stryker runs it once for each mutant. */
const PARTS: Record<string, { include: string[]; exclude: string[]; isolate: boolean }> = {
  // none of these mocks a module, so they share one thread: a mutant costs milliseconds. Those left out are not of the domain
  domain: {
    include: ['test/unit/**/*.test.ts'],
    exclude: ['test/unit/engine/**', 'test/unit/{config,kept-secret,object-store,upload-rows}.test.ts'],
    isolate: false,
  },
  engine: { include: ['test/unit/engine/*.test.ts'], exclude: [], isolate: true },
}

export default defineConfig({
  test: {
    ...PARTS[process.env.MUTATED_PART ?? 'domain'],
    // far above what any of them takes: on a busy machine a mutant must not look killed
    testTimeout: 10_000,
  },
})
