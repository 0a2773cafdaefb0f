import type { Command } from 'commander'

const EXAMPLES = `
Settings come from the environment; the README lists them.

Examples:
  OPLEDGER_TYPES=types.yaml opledger start
  DATABASE_URL=postgres://opledger@db.internal/opledger PORT=3000 opledger api
  DATABASE_URL=postgres://opledger@db.internal/opledger OPLEDGER_TYPES=types.yaml opledger worker
`

/** `opledger start|api|worker`. The entry files run when they are loaded. */
export const addProcessCommands = (program: Command): void => {
  program
    .command('start')
    .description('everything on this machine: PostgreSQL (unless DATABASE_URL is set), migrations, api and workers')
    .addHelpText('after', EXAMPLES)
    .action(async () => void (await import('../start.ts')))
  program
    .command('api')
    .description('the HTTP api (needs DATABASE_URL)')
    .addHelpText('after', EXAMPLES)
    .action(async () => void (await import('../api.ts')))
  program
    .command('worker')
    .description('one worker (needs DATABASE_URL)')
    .addHelpText('after', EXAMPLES)
    .action(async () => void (await import('../worker.ts')))
}
