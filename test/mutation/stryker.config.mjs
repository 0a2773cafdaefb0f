/** Mutation testing of what decides: src/domain and src/engine. See README.md beside this file. */
export default {
  testRunner: 'vitest',
  plugins: ['@stryker-mutator/vitest-runner', './test/mutation/ignore-words.mjs'],
  vitest: { configFile: 'test/mutation/vitest.config.ts' },
  mutate: ['src/domain/*.ts', 'src/engine/*.ts'],
  ignorers: ['words'],
  coverageAnalysis: 'perTest',
  // a changed file costs its own mutants only
  incremental: true,
  incrementalFile: '.stryker/incremental.json',
  tempDirName: '.stryker/tmp',
  reporters: ['clear-text', 'json', 'html'],
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false, skipFull: true },
  jsonReporter: { fileName: '.stryker/report.json' },
  htmlReporter: { fileName: '.stryker/report.html' },
  thresholds: { high: 95, low: 90, break: 85 },
  allowConsoleColors: false,
  // one beside the tests that other people run on the machine
  concurrency: 1,
  // on a busy machine a slow run must not count as a killed mutant
  timeoutMS: 20_000,
}
