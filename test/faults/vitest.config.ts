import { defineConfig } from 'vitest/config'

/** The fault suite has a run of its own: run.ts builds what it attacks, and says how much of it runs. */
export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    name: 'faults',
    include: ['test/faults/**/*.test.ts'],
    globalSetup: ['test/faults/harness/global-setup.ts'],
    reporters: ['default', 'json'],
    outputFile: { json: 'fault-results.json' },
    pool: 'forks',
    maxWorkers: 2,
    hookTimeout: 300_000,
  },
})
