import type { Command } from 'commander'
import { addExamples, addServiceOptions, type ServiceOptions, withService } from './service-command.ts'
import { waitFor } from './wait.ts'

const EXAMPLES = `
Waits until the operation is final, or until what is left of it waits for a person. Ctrl-C stops the waiting, never the
operation. With --json each state is a line of its own; the last one is the end.

Examples:
  opledger watch op_0198c0de7f3a7c0d9a5e4b1f2a3c4d5e
  opledger watch op_… --json | jq --unbuffered .counts.applied
`

/** `opledger watch`. */
export const addWatchCommand = (program: Command): void => {
  const command = program
    .command('watch')
    .description('follow an operation until it is settled, and end with its outcome')
    .argument('<id>', 'of an operation')
    .action((id: string, options: ServiceOptions) =>
      withService(options, (session) => {
        const json = options.json ?? false
        return waitFor(session, id, { json, stream: json })
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}
