import type { Command } from 'commander'
import type { HealthReport } from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { addExamples, addServiceOptions, printJson, type ServiceOptions, withService } from './service-command.ts'
import { printable, table } from './text.ts'

interface HealthOptions extends ServiceOptions {
  type?: string
  quiet?: boolean
}

const EXAMPLES = `
Four figures of each type and the five of the cancel contract, with their thresholds. Exit code 0: no alarm (nothing to
measure is none); 2: an alarm, with the first thing to do; 69: the service was not reached.

Examples:
  opledger health
  */5 * * * *  opledger health --quiet || mail -s opledger on-call@example.org   # in a crontab: silent when all is well
`

type TypeHealth = HealthReport['types'][number]

const figuresOf = ({ figures, cancel_contract }: TypeHealth) => [...figures, ...cancel_contract]

const shownValue = (value: number | null): string => (value === null ? '–' : String(Number(value.toPrecision(4))))

const describeType = (type: TypeHealth, quiet: boolean): string => {
  const shown = figuresOf(type).filter(({ verdict }) => !quiet || verdict === 'alarm')
  const rows = shown.map(({ figure, value, threshold, verdict }) => [figure, shownValue(value), threshold, verdict])
  const actions = shown
    .filter(({ verdict }) => verdict === 'alarm')
    .map(({ figure, first_action }) => [figure, first_action])
  const first = actions.length === 0 ? '' : `  first\n${table(actions, '    ')}`
  return `${printable(type.type)}: ${type.verdict}\n${table(rows, '  ')}${first}`
}

/** `opledger health`. */
export const addHealthCommand = (program: Command): void => {
  const command = program
    .command('health')
    .description('the health report; exit code 2 when a figure is an alarm')
    .option('--type <name>', 'only of this operation type')
    .option('--quiet', 'only alarms; nothing when all is well')
    .action((options: HealthOptions) =>
      withService(options, async ({ api }) => {
        const report = await api.healthReport()
        const types = report.types.filter(({ type }) => options.type === undefined || options.type === type)
        if (types.length === 0 && options.type !== undefined) {
          throw new CommandFailure(`there is no operation type "${options.type}"`, EXIT.refused)
        }
        const alarms = types.filter((type) => figuresOf(type).some(({ verdict }) => verdict === 'alarm'))
        if (options.json) printJson({ ...report, types })
        else {
          const quiet = options.quiet ?? false
          process.stdout.write((quiet ? alarms : types).map((type) => describeType(type, quiet)).join('\n'))
        }
        process.exitCode = alarms.length > 0 ? EXIT.notWell : EXIT.ok
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}
