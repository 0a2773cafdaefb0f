import { createInterface } from 'node:readline/promises'
import type { Command } from 'commander'
import type { Preflight } from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { addScopeOptions, type ScopeOptions } from './preflight.ts'
import { describePreflight, scopeOf } from './preflight-table.ts'
import {
  addExamples,
  addServiceOptions,
  append,
  printJson,
  type ServiceOptions,
  type Session,
  withService,
} from './service-command.ts'
import { describeOperation } from './status-words.ts'
import { countOf } from './text.ts'
import { waitFor } from './wait.ts'

interface ReplayOptions extends ServiceOptions, ScopeOptions {
  reason: string
  preflight?: string
  force?: string[]
  yes?: boolean
  wait?: boolean
}

const EXAMPLES = `
A replay is a new operation over the items that the preflight named; what was applied is never sent again. Without --preflight
one is taken and shown in full first, and you are asked; where there is no terminal to ask on, say --yes. A preflight is used
once: the same command with the same --preflight after a crash answers with the same new operation.

Examples:
  opledger replay op_… --reason "the directory is back"
  opledger replay op_… --preflight pf_… --reason "the directory is back" --wait
  opledger replay op_… --reason "fixed in 4.2" --force bug-suspected --yes --wait
`

/** `opledger replay`. */
export const addReplayCommand = (program: Command): void => {
  const command = program
    .command('replay')
    .description('do again what is missing, as a new operation')
    .argument('<id>', 'of an operation')
    .requiredOption('--reason <text>', 'why it may be done again; kept with the new operation')
    .option('--preflight <id>', 'the preflight that was looked at')
    .option('--force <code>', 'override this code of blocked_by; nothing uncertain can be forced', append)
    .option('--yes', 'do not ask, where a preflight is taken now')
    .option('--wait', 'wait until it is settled, and end with its outcome')
    .action((id: string, options: ReplayOptions) => withService(options, (session) => replay(session, id, options)))
  addExamples(addServiceOptions(addScopeOptions(command)), EXAMPLES)
}

const replay = async (session: Session, id: string, options: ReplayOptions): Promise<void> => {
  const { api, commandLine } = session
  if (options.preflight !== undefined && scopeOf(options) !== null) {
    throw new CommandFailure('--preflight has its scope already: leave the other one out', EXIT.usage)
  }
  const preflightId = options.preflight ?? (await takePreflight(session, id, options))
  if (preflightId === null) return
  const { body: operation, replayed } = await api.replay(id, {
    preflight_id: preflightId,
    reason: options.reason,
    ...(options.force && { force: options.force }),
  })
  if (replayed) process.stderr.write(`this preflight was used before: ${operation.id} is its replay\n`)
  const json = options.json ?? false
  if (options.wait && operation.status !== 'awaiting_approval') await waitFor(session, operation.id, { json })
  else if (json) printJson(operation)
  else process.stdout.write(describeOperation(operation, commandLine))
}

/** Null: it is not to be replayed, and the exit code says why. */
const takePreflight = async (session: Session, id: string, options: ReplayOptions): Promise<string | null> => {
  const preflight = await session.api.preflight(id, scopeOf(options))
  process.stderr.write(`${describePreflight(preflight, session.commandLine)}\n`)
  const forced = options.force ?? []
  if (!preflight.blocked_by.every((code) => forced.includes(code))) {
    process.exitCode = EXIT.blocked
    return null
  }
  if (options.yes || (await confirm(preflight))) return preflight.preflight_id
  process.stderr.write('nothing was replayed\n')
  process.exitCode = EXIT.refused
  return null
}

const confirm = async ({ replay_targets }: Preflight): Promise<boolean> => {
  if (!process.stdin.isTTY) {
    throw new CommandFailure(
      'there is no terminal to ask on: look at the preflight, then say --preflight or --yes',
      EXIT.usage,
    )
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await terminal.question(`Replay ${countOf(replay_targets, 'item')}? Type yes: `)
    return answer.trim().toLowerCase() === 'yes'
  } finally {
    terminal.close()
  }
}
