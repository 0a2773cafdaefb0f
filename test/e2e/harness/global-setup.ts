import { spawnSync } from 'node:child_process'
import type { TestProject } from 'vitest/node'
import { consolePaths, isConsoleBuilt } from '../../../src/embedded/console-build.ts'
import { providePostgres } from '../../support/test-postgres.ts'
import { provideChromium } from './chromium.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The browser's program. */
    chromium: string
  }
}

/** A browser, the console as it is in this checkout, and a database. */
export default async (project: TestProject): Promise<() => Promise<void>> => {
  project.provide('chromium', provideChromium())
  const paths = consolePaths()
  if (!isConsoleBuilt(paths)) {
    const { status } = spawnSync(process.execPath, ['--import', 'tsx', paths.builder], {
      cwd: paths.root,
      stdio: 'inherit',
    })
    if (status !== 0) throw new Error('the console could not be built')
  }
  return providePostgres(project, { fsync: 'off', max_connections: '100' })
}
