import type { Command } from 'commander'

/** `opledger start|api|worker`. The entry files run when they are loaded. */
export const addProcessCommands = (program: Command): void => {
  program
    .command('start')
    .description('everything on this machine: PostgreSQL (unless DATABASE_URL is set), migrations, api and workers')
    .action(async () => void (await import('../start.ts')))
  program
    .command('api')
    .description('the HTTP api (needs DATABASE_URL)')
    .action(async () => void (await import('../api.ts')))
  program
    .command('worker')
    .description('one worker (needs DATABASE_URL)')
    .action(async () => void (await import('../worker.ts')))
}
