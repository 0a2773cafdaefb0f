import type { TestProject } from 'vitest/node'
import { providePostgres } from './test-postgres.ts'

export default (project: TestProject): Promise<() => Promise<void>> =>
  providePostgres(project, { fsync: 'off', max_connections: '200' })
