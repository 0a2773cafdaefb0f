/**
 * Mutation testing of what decides: src/domain and src/engine, each with its own tests. See README.md beside this file.
 * `run.ts` runs both; MUTATED_PART says which one this is.
 */
const part = process.env.MUTATED_PART ?? 'domain'

export default {
  testRunner: 'kept-vitest',
  plugins: ['./test/mutation/runner.mjs', './test/mutation/ignore-words.mjs'],
  mutate: [`src/${part}/*.ts`],
  ignorers: ['words'],
  coverageAnalysis: 'perTest',
  // a changed file costs its own mutants only
  incremental: true,
  incrementalFile: `.stryker/${part}/incremental.json`,
  ignorePatterns: ['.stryker', 'dist', 'coverage'],
  tempDirName: `.stryker/tmp-${part}`,
  reporters: ['progress-append-only', 'clear-text', 'json', 'html'],
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false, skipFull: true },
  jsonReporter: { fileName: `.stryker/${part}/report.json` },
  htmlReporter: { fileName: `.stryker/${part}/report.html` },
  allowConsoleColors: false,
  // one beside the tests that other people run on the machine
  concurrency: 1,
  // on a busy machine a slow run must not count as a killed mutant
  timeoutMS: 240_000,
  warnings: { slow: false },
}
