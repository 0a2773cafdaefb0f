import { Command } from 'commander'
import { addApproveCommand } from './approve.ts'
import { addCancelCommand } from './cancel.ts'
import { addCompletionCommand } from './completion.ts'
import { EXIT, EXIT_CODES_HELP } from './exit-codes.ts'
import { addHealthCommand } from './health.ts'
import { addIncidentCommands } from './incidents.ts'
import { addKeyCommands } from './keys.ts'
import { addMigrateCommand } from './migrate.ts'
import { addOpenApiCommand } from './openapi.ts'
import { addPreflightCommand } from './preflight.ts'
import { addProcessCommands } from './processes.ts'
import { addReconcileCommands } from './reconcile.ts'
import { addReplayCommand } from './replay.ts'
import { addRestoredCommand } from './restored.ts'
import { CONNECTION_HELP } from './service-command.ts'
import { addSubmitCommand } from './submit.ts'
import { addTenantCommands } from './tenants.ts'
import { addWatchCommand } from './watch.ts'

/** The command line: a thin shell. Each command loads what it needs, so that `--help` is quick. */
export const buildProgram = (): Command => {
  const program = new Command('opledger')
    .description('Long-running operations with a result ledger.')
    .showHelpAfterError('(opledger --help lists the commands)')
    .addHelpText('after', `${CONNECTION_HELP}${EXIT_CODES_HELP}`)
    // sysexits.h, as for a wrong setting: a script can tell a typo from a refusal
    .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : EXIT.usage))

  program.commandsGroup('Work with operations:')
  addSubmitCommand(program)
  addWatchCommand(program)
  addCancelCommand(program)
  addPreflightCommand(program)
  addReplayCommand(program)
  addApproveCommand(program)
  program.commandsGroup('Look after them:')
  addHealthCommand(program)
  addReconcileCommands(program)
  addIncidentCommands(program)
  program.commandsGroup('Run the service:')
  addProcessCommands(program)
  addMigrateCommand(program)
  addKeyCommands(program)
  addTenantCommands(program)
  addRestoredCommand(program)
  program.commandsGroup('Other:')
  addOpenApiCommand(program)
  addCompletionCommand(program)
  return program
}
