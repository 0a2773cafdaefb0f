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
  // never by the time of day: the runner measures for itself (kept-threads.mjs), also when the machine lets it stand still
  timeoutMS: 24 * 60 * 60 * 1_000,
  dryRunTimeoutMinutes: 24 * 60,
  warnings: { slow: false },
}
