import type { Command } from 'commander'
import { addExamples, addServiceOptions, printJson, type ServiceOptions, withService } from './service-command.ts'
import { describeOperation } from './status-words.ts'

interface ApproveOptions extends ServiceOptions {
  note?: string
  reject?: boolean
}

const EXAMPLES = `
The decision of the second person, never of the requester. What is approved is what the preflight named, and nothing else.

Examples:
  opledger approve op_… --note "one grant, checked"
  opledger approve op_… --reject --note "not before Monday"
`

/** `opledger approve`. */
export const addApproveCommand = (program: Command): void => {
  const command = program
    .command('approve')
    .description('approve an operation that waits for a second person, or reject it')
    .argument('<id>', 'of an operation')
    .option('--note <text>', 'kept with the decision; needed where nothing could undo the effects')
    .option('--reject', 'it ends cancelled, and nothing of it ever runs')
    .action((id: string, options: ApproveOptions) =>
      withService(options, async ({ api, commandLine }) => {
        const operation = await api.approve(id, {
          decision: options.reject ? 'reject' : 'approve',
          ...(options.note !== undefined && { note: options.note }),
        })
        if (options.json) printJson(operation)
        else process.stdout.write(describeOperation(operation, commandLine))
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}
