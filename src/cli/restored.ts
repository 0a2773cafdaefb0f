import type { Command } from 'commander'
import { ConfigurationError } from '../domain/errors.ts'
import { commandLineAuthor } from './author.ts'

const DOUBT_DAYS = '30'

const daysOf = (text: string): number => {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text)
  throw new ConfigurationError(`--days: "${text}" is not a number of days from 1 to 9999`)
}

const EXAMPLES = `
Examples:
  opledger restored
  opledger restored --days 90
`

/** `opledger restored`: docs/restore.md says when. */
export const addRestoredCommand = (program: Command): void => {
  program
    .command('restored')
    .description('say that the database was taken back to an older point; no worker may run (see docs/restore.md)')
    .option('--days <days>', 'for how long new operations may repeat what lost ones did', DOUBT_DAYS)
    .addHelpText('after', EXAMPLES)
    .action(async (options: { days: string }) => {
      const { withDatabase } = await import('./database.ts')
      const { recordRestore } = await import('../storage/restores.ts')
      const { auditEntry } = await import('../services/audit.ts')
      await withDatabase('restored', async (database) => {
        const doubtDays = daysOf(options.days)
        const audit = auditEntry(commandLineAuthor(), 'database.restored', ['database', 'opledger'], null, {
          days: doubtDays,
        })
        const recorded = await recordRestore(database, { doubtDays, audit })
        if ('refused' in recorded) {
          throw new ConfigurationError(
            `worker ${recorded.pid} on ${recorded.host} was seen a moment ago: stop every worker, and try again in ${recorded.waitSeconds} s`,
          )
        }
        const { restoredAt, lostSince, doubtUntil, operations } = recorded
        process.stdout.write(
          [
            `Recorded: the database was restored before ${restoredAt}, and what was done after ${lostSince} may be lost.`,
            `Open operations: ${operations}. Their external effects are looked up before they are sent; those that cannot be`,
            `looked up become uncertain. So are effects of new operations until ${doubtUntil}, unless their key names the operation.`,
            'Lost as well are operations, cancels, pauses and resolutions of that time: repeat those that count, then start the workers.',
            '',
          ].join('\n'),
        )
      })
    })
}
