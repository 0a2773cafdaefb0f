import { type Command, InvalidArgumentError } from 'commander'
import { Refusal } from './api-client.ts'
import type { Operation, Submission } from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { untilInterrupted } from './interrupt.ts'
import { openProgress, type Progress } from './progress.ts'
import { formatOf, openRowsFile, type RowsFile } from './rows-file.ts'
import {
  addExamples,
  addServiceOptions,
  append,
  collect,
  printJson,
  type ServiceOptions,
  type Session,
  withService,
} from './service-command.ts'
import { describeOperation } from './status-words.ts'
import { deriveKey, type Submitted, submitInput, submitRows } from './submission.ts'
import { wholeNumber } from './text.ts'
import { waitFor } from './wait.ts'

interface SubmitOptions extends ServiceOptions {
  type: string
  keyColumn?: string
  format?: string
  input?: unknown
  reason?: string
  label?: string[]
  priority?: number
  runAfter?: string
  deadline?: string
  callbackUrl?: string
  after?: string[]
  afterWhen?: string
  stopIf?: string[]
  idempotencyKey?: string
  wait?: boolean
}

const EXAMPLES = `
The file is CSV with a header, or NDJSON ({"key": …, "input": …} a line; by its name, or --format). One column of CSV holds
the item keys, the others become members of each item's input. It is streamed: a million rows need no more memory than ten.

Repeating is safe. The operation is named by an idempotency key, which is derived from the type and the content of the file:
the same command after a crash, of this program or of anything else, goes on where the last one was, and nothing is
submitted twice. The same rows with another reason or label are refused. For new work with the same rows, give
--idempotency-key a name of your own (newsletter-2026-11); repeat the command with that same key.

Examples:
  opledger submit grants.csv --type grant-role --reason "audit 2026" --wait
  opledger submit places.csv --type example-import --key-column id --label source=geonames
  opledger submit --type ledger-export --input '{"operation_id": "op_…"}' --wait
  opledger submit grants.csv --type grant-role --json | jq -r .id
`

const json = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    throw new InvalidArgumentError('It is not JSON.')
  }
}

const integer = (text: string): number => {
  if (!/^-?\d{1,6}$/.test(text)) throw new InvalidArgumentError('It is not a whole number.')
  return Number(text)
}

/** `opledger submit`. */
export const addSubmitCommand = (program: Command): void => {
  const command = program
    .command('submit')
    .description('submit an operation: with a file of items, or with --input')
    .argument('[file]', 'CSV with a header, or NDJSON')
    .requiredOption('--type <name>', 'operation type')
    .option('--key-column <column>', 'CSV: the column with the item keys (default: key)')
    .option('--format <format>', 'csv or ndjson, whatever the name of the file says')
    .option('--input <json>', 'for a type that makes its own items, in place of a file', json)
    .option('--reason <text>', 'why; kept with the operation')
    .option('--label <name=value>', 'may be given several times', append)
    .option('--priority <number>', 'higher goes first', integer)
    .option('--run-after <time>', 'not before (RFC 3339)')
    .option('--deadline <time>', 'cancel what is left then (RFC 3339)')
    .option('--callback-url <url>', 'where the webhook goes when it is settled')
    .option('--after <id>', 'begin after these operations', collect)
    .option('--after-when <outcome>', 'succeeded (the default) or settled')
    .option(
      '--stop-if <condition>',
      'pause when it trips, as in "downstream_error_rate_5m > 1%"; stricter ones than the type has',
      append,
    )
    .option('--idempotency-key <key>', 'names the work; default: derived from type and content')
    .option('--wait', 'wait until it is settled, and end with its outcome')
    .action((file: string | undefined, options: SubmitOptions) =>
      withService(options, (session) => submit(session, file, options)),
    )
  addExamples(addServiceOptions(command), EXAMPLES)
}

const labelsOf = (pairs: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=')
      if (at < 1) throw new CommandFailure(`--label: "${pair}" is not name=value`, EXIT.usage)
      return [pair.slice(0, at), pair.slice(at + 1)]
    }),
  )

const bodyOf = (options: SubmitOptions): Submission => ({
  type: options.type,
  ...(options.input !== undefined && { input: options.input }),
  ...(options.reason !== undefined && { reason: options.reason }),
  ...(options.label && { labels: labelsOf(options.label) }),
  ...(options.priority !== undefined && { priority: options.priority }),
  ...(options.runAfter !== undefined && { run_after: options.runAfter }),
  ...(options.deadline !== undefined && { deadline_at: options.deadline }),
  ...(options.callbackUrl !== undefined && { callback_url: options.callbackUrl }),
  ...(options.after && { after: options.after }),
  ...(options.afterWhen !== undefined && { after_when: options.afterWhen }),
  ...(options.stopIf && { stop_if: options.stopIf }),
})

const submit = async (session: Session, path: string | undefined, options: SubmitOptions): Promise<void> => {
  if ((path === undefined) === (options.input === undefined)) {
    throw new CommandFailure('give either a file of items or --input', EXIT.usage)
  }
  const body = bodyOf(options)
  const progress = openProgress(process.stderr)
  let draftId: string | null = null
  const submitted = await untilInterrupted(
    (signal) => {
      if (path === undefined) {
        const key = options.idempotencyKey ?? deriveKey(options.type, JSON.stringify(options.input))
        return submitInput(session.api, body, key, signal)
      }
      return submitFile(session, { path, body, options, progress, signal, onDraft: (id) => (draftId = id) })
    },
    () => [
      'Nothing of it runs before its rows are complete. Run the same command again to go on where this one was.',
      ...(draftId === null ? [] : [`To drop it: ${session.commandLine(`cancel ${draftId}`)}`]),
    ],
  ).catch((error: unknown) => {
    progress.end()
    throw withReusedKeyHint(error, options)
  })
  progress.end()
  await report(session, submitted, options, progress)
}

interface FileSubmission {
  path: string
  body: Submission
  options: SubmitOptions
  progress: Progress
  signal: AbortSignal
  onDraft: (id: string) => void
}

const submitFile = async (
  { api }: Session,
  { path, body, options, progress, signal, onDraft }: FileSubmission,
): Promise<Submitted> => {
  const file = await openRowsFile(path, formatOf(path, options.format))
  if (file.format === 'ndjson' && options.keyColumn !== undefined) {
    throw new CommandFailure('--key-column: NDJSON names the key of each item by itself', EXIT.usage)
  }
  const keyColumn = options.keyColumn ?? null
  const derived = deriveKey(options.type, [file.format, keyColumn ?? '', file.sha256].join('\n'))
  const key = { value: options.idempotencyKey ?? derived, derived: options.idempotencyKey === undefined }
  return submitRows(api, body, { file, keyColumn }, key, eventsOf(file, progress, onDraft), signal)
}

const KIB = 1024

const eventsOf = ({ bytes }: RowsFile, progress: Progress, onDraft: (id: string) => void) => ({
  onDraft,
  onBytes: (sent: number) =>
    progress.showWork({
      label: 'uploading',
      done: sent,
      total: bytes,
      note: `${wholeNumber(sent / KIB)} of ${wholeNumber(bytes / KIB)} KiB`,
    }),
  note: (text: string) => progress.note(text),
})

/** The problem says that the key is another request's; here is how that comes about, and what to do. */
const withReusedKeyHint = (error: unknown, { idempotencyKey }: SubmitOptions): unknown => {
  if (!(error instanceof Refusal) || error.problem.code !== 'idempotency-key-reused' || idempotencyKey !== undefined) {
    return error
  }
  return new CommandFailure(
    'the same content was submitted or tried before, with another reason, label or option',
    EXIT.refused,
    {
      hints: [
        'It was not submitted again. Run the first command again to see what became of it;',
        'for new work with the same content, give --idempotency-key a name of your own.',
      ],
      cause: error,
    },
  )
}

const report = async (
  session: Session,
  { operation, replayed }: Submitted,
  options: SubmitOptions,
  progress: Progress,
): Promise<void> => {
  if (replayed) {
    progress.note(
      `${operation.id} was submitted before, on ${operation.created_at}: this is the same one. For new work, give --idempotency-key.`,
    )
  }
  if (options.wait) await waitFor(session, operation.id, { progress, json: options.json ?? false })
  else show(session, operation, options)
}

const show = (session: Session, operation: Operation, { json: asJson }: SubmitOptions): void => {
  if (asJson) printJson(operation)
  else {
    process.stdout.write(describeOperation(operation, session.commandLine))
    process.stderr.write(`follow it: ${session.commandLine(`watch ${operation.id}`)}\n`)
  }
}
