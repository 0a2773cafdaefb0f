import { defineConfig } from 'vitest/config'

/** What is fast and needs no database. */
const PARTS: Record<string, { include: string[]; isolate: boolean; maxWorkers: number }> = {
  // none of these mocks a module: one thread has them all
  domain: { include: ['test/unit/domain/*.test.ts'], isolate: false, maxWorkers: 1 },
  // as many threads as there are files: each is kept
  engine: { include: ['test/unit/engine/*.test.ts'], isolate: true, maxWorkers: 100 },
}

export default defineConfig({
  test: {
    ...PARTS[process.env.MUTATED_PART ?? 'domain'],
    pool: 'threads',
    setupFiles: ['test/mutation/kept-worker.ts'],
    sequence: { hooks: 'list' },
    // far above what any of them takes: on a busy machine a mutant must not look killed
    testTimeout: 30_000,
  },
})
