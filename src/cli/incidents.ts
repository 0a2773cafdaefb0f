import type { Command } from 'commander'
import type { Incident, ResolvedIncident } from './api-types.ts'
import { EXIT } from './exit-codes.ts'
import { addExamples, addServiceOptions, printJson, type ServiceOptions, withService } from './service-command.ts'
import { table, wholeNumber } from './text.ts'

const INCIDENTS_SHOWN = 100
const MESSAGE_CHARS_MAX = 60
/** More named items than this, and the file of the API is the better place for them. */
const ITEMS_NAMED_MAX = 20

interface ListOptions extends ServiceOptions {
  type?: string
  all?: boolean
}

interface ResolveOptions extends ServiceOptions {
  reason: string
  fixedIn?: string
}

const EXAMPLES = `
An incident is one cause: all dead letters with the same fingerprint. Resolving says that the cause is mended, closes its dead
letters, replays nothing, and names the preflights to run now.

Examples:
  opledger incidents list
  opledger incidents show inc_…
  opledger incidents resolve inc_… --fixed-in 4.2.1 --reason "the directory takes umlauts again"
`

/** `opledger incidents list|show|resolve`. */
export const addIncidentCommands = (program: Command): void => {
  const group = program.command('incidents').description('dead letters by their cause: list, resolve, what to replay')
  group.addHelpText('after', EXAMPLES)
  addList(group)
  addShow(group)
  addResolve(group)
}

const shortened = (text: string): string =>
  text.length > MESSAGE_CHARS_MAX ? `${text.slice(0, MESSAGE_CHARS_MAX - 1)}…` : text

const causeOf = ({ sample }: Incident): string =>
  shortened([sample.failure_class, sample.reason_code, sample.message].filter((part) => part !== null).join('  '))

const describeIncidents = (incidents: readonly Incident[]): string => {
  if (incidents.length === 0) return 'no incident\n'
  const rows = incidents.map((one) => [
    one.id,
    one.type,
    one.open_count,
    one.operation_count,
    one.first_seen_at,
    one.last_seen_at,
    causeOf(one),
  ])
  const more = incidents.length === INCIDENTS_SHOWN ? `the first ${INCIDENTS_SHOWN}; there may be more\n` : ''
  return `${table([['INCIDENT', 'TYPE', 'OPEN', 'OPERATIONS', 'FIRST SEEN', 'LAST SEEN', 'CAUSE'], ...rows])}${more}`
}

const describeIncident = (one: Incident): string =>
  table([
    ['incident', one.id],
    ['type', one.type],
    ['status', one.status],
    ['dead letters', `${wholeNumber(one.open_count)} open of ${wholeNumber(one.count)}`],
    ['operations', `${wholeNumber(one.operation_count)}, the newest ${one.sample.operation_id}`],
    ['seen', `${one.first_seen_at} to ${one.last_seen_at}`],
    ['sample', `${one.sample.item_key}: ${causeOf(one)}`],
    ...(one.resolution === null
      ? []
      : [['resolved', `${one.resolution.resolved_at} by ${one.resolution.resolved_by}: ${one.resolution.reason}`]]),
  ])

const addList = (group: Command): void => {
  const command = group
    .command('list')
    .description('the open incidents; exit code 2 when there are any')
    .option('--type <name>', 'only of this operation type')
    .option('--all', 'resolved ones too')
    .action((options: ListOptions) =>
      withService(options, async ({ api }) => {
        const filters = {
          ...(options.type !== undefined && { type: options.type }),
          ...(!options.all && { status: 'open' }),
        }
        const incidents = await api.incidents(filters, INCIDENTS_SHOWN)
        if (options.json) printJson(incidents)
        else process.stdout.write(describeIncidents(incidents))
        process.exitCode = incidents.some(({ status }) => status === 'open') ? EXIT.notWell : EXIT.ok
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

const addShow = (group: Command): void => {
  const command = group
    .command('show')
    .description('one incident')
    .argument('<incident>', 'its id')
    .action((id: string, options: ServiceOptions) =>
      withService(options, async ({ api }) => {
        const incident = await api.getIncident(id)
        if (options.json) printJson(incident)
        else process.stdout.write(describeIncident(incident))
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

type Proposed = ResolvedIncident['preflights'][number]

const shellQuoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const preflightCommand = ({ operation_id, scope, targets }: Proposed): string => {
  const items = scope.item_keys ?? []
  const named = items.length <= ITEMS_NAMED_MAX ? items.map((key) => ` --item ${shellQuoted(key)}`).join('') : ''
  const classes = scope.failure_classes ?? []
  const failed = classes.length > 0 ? ` --failure-class ${classes.join(',')}` : ''
  const states = ` --state ${scope.states.join(',')}`
  const note =
    items.length > ITEMS_NAMED_MAX ? `   # ${wholeNumber(targets)} items: with --json they are all named` : ''
  return `preflight ${operation_id}${states}${failed}${named}${note}`
}

const addResolve = (group: Command): void => {
  const command = group
    .command('resolve')
    .description('say that the cause is mended, and learn which preflights to run')
    .argument('<incident>', 'its id')
    .requiredOption('--reason <text>', 'what was done')
    .option('--fixed-in <version>', 'version, deployment or change that mends the cause')
    .action((id: string, options: ResolveOptions) =>
      withService(options, async ({ api, commandLine }) => {
        const resolved = await api.resolveIncident(id, {
          reason: options.reason,
          ...(options.fixedIn !== undefined && { fixed_in: options.fixedIn }),
        })
        if (options.json) return printJson(resolved)
        process.stdout.write(`${id} resolved; nothing was replayed\n`)
        for (const proposed of resolved.preflights) {
          process.stdout.write(`next: ${commandLine(preflightCommand(proposed))}\n`)
        }
        if (resolved.has_more_preflights) {
          process.stdout.write('further operations have such items: resolve again after these replays\n')
        }
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}
