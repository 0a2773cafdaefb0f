import type { Command } from 'commander'
import { Refusal } from './api-client.ts'
import type { Case, Resolution } from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { describeFailure, formatFailure } from './failures.ts'
import { addExamples, addServiceOptions, printJson, type ServiceOptions, withService } from './service-command.ts'
import { countOf, duration, table } from './text.ts'

/** Shown at a time; the oldest come first, and are the ones to begin with. */
const CASES_SHOWN = 100
/** After it a case is a figure of the health report. */
const OVERDUE_SECONDS = 24 * 3_600

interface ListOptions extends ServiceOptions {
  operation?: string
  type?: string
  item?: string
  all?: boolean
}

interface ResolveOptions extends ServiceOptions {
  applied?: boolean
  notApplied?: boolean
  evidence: string
  effectRef?: string
  note?: string
  retry?: boolean
}

const EXAMPLES = `
An uncertain effect may have happened or not. Look at the target itself (\`lookup\` asks the provider now), then say which, with
the evidence for it: a ticket, a message id, a line of its log. Several cases can be closed by one piece of evidence. Of two
resolvers one wins, and the other is told the outcome. Nothing is replayed while anything is uncertain.

Examples:
  opledger reconcile list --operation op_…
  opledger reconcile show case_…
  opledger reconcile lookup case_…
  opledger reconcile resolve case_… --applied --evidence "portal message 4711"
  opledger reconcile resolve case_… case_… --not-applied --retry --evidence "ticket 88: their log has neither"
`

/** `opledger reconcile list|show|lookup|resolve`. */
export const addReconcileCommands = (program: Command): void => {
  const group = program
    .command('reconcile')
    .description('what is uncertain: list it, look it up, close it with evidence')
  group.addHelpText('after', EXAMPLES)
  addList(group)
  addShow(group)
  addLookup(group)
  addResolve(group)
}

const addList = (group: Command): void => {
  const command = group
    .command('list')
    .description('the open cases, oldest first; exit code 4 when there are any')
    .option('--operation <id>', 'only of this operation')
    .option('--type <name>', 'only of this operation type')
    .option('--item <key>', 'only of this item')
    .option('--all', 'closed ones too')
    .action((options: ListOptions) =>
      withService(options, async ({ api, commandLine }) => {
        const filters = {
          ...(options.operation !== undefined && { operation_id: options.operation }),
          ...(options.type !== undefined && { type: options.type }),
          ...(options.item !== undefined && { item_key: options.item }),
          ...(!options.all && { status: 'open' }),
        }
        const cases = await api.cases(filters, CASES_SHOWN)
        const open = cases.filter(({ status }) => status === 'open').length
        if (options.json) printJson(cases)
        else process.stdout.write(describeCases(cases, Date.now()))
        if (open > 0)
          process.stderr.write(`next: ${commandLine('reconcile resolve <case> --applied --evidence "…"')}\n`)
        process.exitCode = open > 0 ? EXIT.undecided : EXIT.ok
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

const ageOf = (openedAt: string, now: number): string => {
  const seconds = (now - Date.parse(openedAt)) / 1_000
  return `${duration(seconds)}${seconds > OVERDUE_SECONDS ? ' !' : ''}`
}

const describeCases = (cases: readonly Case[], now: number): string => {
  if (cases.length === 0) return 'nothing is uncertain\n'
  const rows = cases.map((one) => [
    one.id,
    one.resolution === null ? ageOf(one.opened_at, now) : one.resolution.resolution,
    one.type,
    one.step === null ? one.item_key : `${one.item_key} (${one.step})`,
    one.cause,
    one.lookups.next_at === null ? 'a person' : 'a lookup',
  ])
  const more = cases.length === CASES_SHOWN ? `the oldest ${CASES_SHOWN}; there may be more\n` : ''
  return `${table([['CASE', 'AGE', 'TYPE', 'ITEM', 'CAUSE', 'WAITS FOR'], ...rows])}${more}`
}

const describeCase = (one: Case): string =>
  table([
    ['case', one.id],
    ['operation', one.operation_id],
    ['item', one.step === null ? one.item_key : `${one.item_key}, step ${one.step}`],
    ['effect key', one.effect_key],
    ['cause', one.cause],
    ['opened', one.opened_at],
    ['due', `${one.due_at}, then it goes to ${one.owner ?? 'nobody: its type names no owner'}`],
    ['lookups', `${one.lookups.count}, last answer: ${one.lookups.last_answer ?? 'none'}`],
    ['next lookup', one.lookups.next_at ?? 'none: it waits for a person'],
    ...(one.resolution === null
      ? []
      : [
          ['resolved', `${one.resolution.resolution}, by ${one.resolution.resolved_by ?? one.resolution.source}`],
          ['evidence', one.resolution.evidence_ref ?? 'none'],
          ...(one.resolution.note === null ? [] : [['note', one.resolution.note]]),
        ]),
  ])

const print = (one: Case, json: boolean | undefined): void => {
  if (json) printJson(one)
  else process.stdout.write(describeCase(one))
}

const addShow = (group: Command): void => {
  const command = group
    .command('show')
    .description('one case')
    .argument('<case>', 'its id')
    .action((id: string, options: ServiceOptions) =>
      withService(options, async ({ api }) => print(await api.getCase(id), options.json)),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

const addLookup = (group: Command): void => {
  const command = group
    .command('lookup')
    .description('ask the provider about a case now')
    .argument('<case>', 'its id')
    .action((id: string, options: ServiceOptions) =>
      withService(options, async ({ api }) => {
        const one = await api.lookupCase(id)
        print(one, options.json)
        process.exitCode = one.status === 'open' ? EXIT.undecided : EXIT.ok
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

const addResolve = (group: Command): void => {
  const command = group
    .command('resolve')
    .description('close cases with evidence')
    .argument('<case...>', 'their ids')
    .requiredOption('--evidence <reference>', 'where the evidence can be found')
    .option('--applied', 'the effect happened')
    .option('--not-applied', 'it did not')
    .option('--retry', 'with --not-applied: send it again; without, the item is failed')
    .option('--effect-ref <reference>', 'what the provider calls the effect')
    .option('--note <text>', 'kept with the case')
    .action((ids: string[], options: ResolveOptions) =>
      withService(options, async ({ api }) => {
        const resolution = resolutionOf(options)
        const resolved: Case[] = []
        let refused = 0
        for (const id of ids) {
          try {
            resolved.push(await api.resolveCase(id, resolution))
            if (!options.json) process.stdout.write(`${id} resolved as ${resolution.resolution}\n`)
          } catch (error) {
            // one that somebody else has closed does not keep the others open
            if (ids.length === 1 || !(error instanceof Refusal)) throw error
            refused++
            process.stderr.write(formatFailure([`${id}:`, ...(describeFailure(error)?.lines ?? [])]))
          }
        }
        if (options.json) printJson(resolved)
        if (refused > 0) throw new CommandFailure(`${countOf(refused, 'case')} not resolved`, EXIT.refused)
      }),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

const resolutionOf = (options: ResolveOptions): Resolution => {
  if (options.applied === options.notApplied) {
    throw new CommandFailure('say either --applied or --not-applied', EXIT.usage)
  }
  if (options.retry && !options.notApplied) {
    throw new CommandFailure('--retry: only what was not applied can be sent again', EXIT.usage)
  }
  return {
    resolution: options.applied ? 'applied' : 'not_applied',
    evidence_ref: options.evidence,
    ...(options.effectRef !== undefined && { effect_ref: options.effectRef }),
    ...(options.note !== undefined && { note: options.note }),
    ...(options.retry && { retry: true }),
  }
}
