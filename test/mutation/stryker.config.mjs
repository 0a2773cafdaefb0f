/**
 * Mutation testing of what decides: src/domain and src/engine, each with its own tests. See README.md beside this file.
 * `run.ts` runs both; MUTATED_PART says which one this is.
 */
const part = process.env.MUTATED_PART ?? 'domain'

export default {
  testRunner: 'vitest',
  plugins: ['@stryker-mutator/vitest-runner', './test/mutation/ignore-words.mjs'],
  vitest: { configFile: 'test/mutation/vitest.config.ts' },
  mutate: [`src/${part}/*.ts`],
  ignorers: ['words'],
  coverageAnalysis: 'perTest',
  // a changed file costs its own mutants only
  incremental: true,
  incrementalFile: `.stryker/${part}/incremental.json`,
  tempDirName: `.stryker/tmp-${part}`,
  reporters: ['progress-append-only', 'clear-text', 'json', 'html'],
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false, skipFull: true },
  jsonReporter: { fileName: `.stryker/${part}/report.json` },
  htmlReporter: { fileName: `.stryker/${part}/report.html` },
  allowConsoleColors: false,
  // one beside the tests that other people run on the machine
  concurrency: 1,
  // on a busy machine a slow run must not count as a killed mutant
  timeoutMS: 20_000,
  warnings: { slow: false },
}
