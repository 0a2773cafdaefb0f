/** Waiting for an operation, as `watch`, `submit --wait`, `cancel --wait` and `replay --wait` do it. */
import type { Operation } from './api-types.ts'
import { EXIT } from './exit-codes.ts'
import { follow } from './follow.ts'
import { untilInterrupted } from './interrupt.ts'
import { openProgress, type Progress } from './progress.ts'
import { printJson, type Session } from './service-command.ts'
import { describeOperation } from './status-words.ts'

/** What the end of an operation is for somebody who wanted it to succeed. */
export const exitCodeOf = ({ status }: Operation): number => {
  if (status === 'succeeded') return EXIT.ok
  return status === 'reconciliation_required' ? EXIT.undecided : EXIT.notWell
}

interface WaitOptions {
  json: boolean
  progress?: Progress
  /** Each state as a line of JSON, not only the last. */
  stream?: boolean
  exitCode?: (operation: Operation) => number
}

/** Shows the progress, prints the end, and sets the exit code of the process. */
export const waitFor = async (session: Session, id: string, options: WaitOptions): Promise<void> => {
  const { progress = openProgress(process.stderr), stream = false, exitCode = exitCodeOf } = options
  const printLine = (operation: Operation) => process.stdout.write(`${JSON.stringify(operation)}\n`)
  const ended = await untilInterrupted(
    (signal) =>
      follow(session.api, id, {
        signal,
        show: stream ? printLine : (operation) => progress.show(operation),
        onSilence: (message) => progress.note(`${message}; trying again, the operation goes on`),
      }),
    () => [
      'The operation goes on without this command.',
      `To follow it again: ${session.commandLine(`watch ${id}`)}`,
      `To stop it: ${session.commandLine(`cancel ${id} --wait`)}`,
    ],
  ).finally(() => progress.end())
  if (options.json && !stream) printJson(ended)
  if (!options.json) process.stdout.write(describeOperation(ended, session.commandLine))
  process.exitCode = exitCode(ended)
}
