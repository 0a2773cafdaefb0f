import type { TestProject } from 'vitest/node'
import { providePostgres } from '../../support/test-postgres.ts'

/** With its usual durability: what PostgreSQL said that it kept is kept. */
export default (project: TestProject): Promise<() => Promise<void>> =>
  providePostgres(project, { max_connections: '300' })
