import { describeFailure, formatFailure } from './cli/failures.ts'
import { buildProgram } from './cli/program.ts'
import { runEntry } from './shutdown.ts'

// A reader that has seen enough, like `head`, is no error.
process.stdout.on('error', () => process.exit(0))

await runEntry(async () => {
  try {
    await buildProgram().parseAsync()
  } catch (error) {
    const failure = describeFailure(error)
    if (failure === null) throw error
    process.stderr.write(formatFailure(failure.lines))
    process.exitCode = failure.exitCode
  }
})
