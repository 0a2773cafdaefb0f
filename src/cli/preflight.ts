import type { Command } from 'commander'
import { EXIT } from './exit-codes.ts'
import { describePreflight, scopeOf } from './preflight-table.ts'
import {
  addExamples,
  addServiceOptions,
  append,
  collect,
  printJson,
  type ServiceOptions,
  withService,
} from './service-command.ts'

export interface ScopeOptions {
  state?: string[]
  failureClass?: string[]
  item?: string[]
}

export const addScopeOptions = (command: Command): Command =>
  command
    .option('--state <list>', 'only items in these states: failed, unprocessed', collect)
    .option('--failure-class <list>', 'only items that failed as these classes', collect)
    .option('--item <key>', 'only this item; may be given several times', append)

const EXAMPLES = `
Asks what a replay would touch, and what forbids it. The answer is recorded, changes nothing, and is what \`replay\` replays.
Exit code 0: allowed; 3: blocked.

Examples:
  opledger preflight op_…
  opledger preflight op_… --failure-class transient
  opledger preflight op_… --json | jq -r .preflight_id
`

/** `opledger preflight`. */
export const addPreflightCommand = (program: Command): void => {
  const command = program
    .command('preflight')
    .description('ask what a replay would touch, and what forbids it (exit code 3)')
    .argument('<id>', 'of an operation')
    .action((id: string, options: ServiceOptions & ScopeOptions) =>
      withService(options, async ({ api, commandLine }) => {
        const preflight = await api.preflight(id, scopeOf(options))
        if (options.json) printJson(preflight)
        else {
          process.stdout.write(describePreflight(preflight, commandLine))
          if (preflight.allowed) {
            const rest = `replay ${id} --preflight ${preflight.preflight_id} --reason "…"`
            process.stdout.write(`next: ${commandLine(rest)}\n`)
          }
        }
        process.exitCode = preflight.allowed ? EXIT.ok : EXIT.blocked
      }),
    )
  addExamples(addServiceOptions(addScopeOptions(command)), EXAMPLES)
}
