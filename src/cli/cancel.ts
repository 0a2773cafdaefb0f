import type { Command } from 'commander'
import type { Operation } from './api-types.ts'
import { EXIT } from './exit-codes.ts'
import { addExamples, addServiceOptions, printJson, type ServiceOptions, withService } from './service-command.ts'
import { describeOperation } from './status-words.ts'
import { waitFor } from './wait.ts'

interface CancelOptions extends ServiceOptions {
  reason?: string
  wait?: boolean
}

const EXAMPLES = `
The cancel is stored before it is answered, and survives any crash. No new effect begins after it; what is in the air is
collected. Asking again is safe. With --wait: 0 means that it stopped with something not processed, 2 that it was too late.

Examples:
  opledger cancel op_… --reason "wrong text" --wait
`

/** Of somebody who wanted it to stop. */
const exitCodeOf = ({ status }: Operation): number => {
  if (status === 'cancelled') return EXIT.ok
  return status === 'reconciliation_required' ? EXIT.undecided : EXIT.notWell
}

/** `opledger cancel`. */
export const addCancelCommand = (program: Command): void => {
  const command = program
    .command('cancel')
    .description('stop an operation at a safe boundary')
    .argument('<id>', 'of an operation')
    .option('--reason <text>', 'why; kept with the operation')
    .option('--wait', 'wait until it has stopped')
    .action((id: string, options: CancelOptions) =>
      withService(options, async (session) => {
        const operation = await session.api.cancel(id, options.reason ?? null)
        const json = options.json ?? false
        if (options.wait) await waitFor(session, id, { json, exitCode: exitCodeOf })
        else if (json) printJson(operation)
        else process.stdout.write(describeOperation(operation, session.commandLine))
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}
