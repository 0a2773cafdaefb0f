/** How a command says that it failed, and with which exit code. */
import { Refusal } from './api-client.ts'
import type { Problem } from './api-types.ts'
import { CommandFailure, EXIT } from './exit-codes.ts'
import { printable } from './text.ts'

/** Of one problem; the API tells at most 100. */
const FAULTS_SHOWN_MAX = 20

const exitCodeOf = ({ code, status }: Problem): number => {
  if (code === 'replay-blocked') return EXIT.blocked
  return status >= 500 || status === 429 || status === 408 ? EXIT.unavailable : EXIT.refused
}

/** The problem in the words of the API: what, why, where in what was sent, and the page that says what to do. */
const describeProblem = (problem: Problem): string[] => {
  const faults = problem.errors ?? []
  const lines = [problem.detail]
  for (const { detail, pointer, line } of faults.slice(0, FAULTS_SHOWN_MAX)) {
    // "line 2: …" stands in the detail already
    const where = line === undefined && pointer ? `${pointer}: ` : ''
    lines.push(`- ${where}${detail}`)
  }
  if (faults.length > FAULTS_SHOWN_MAX) lines.push(`- and ${faults.length - FAULTS_SHOWN_MAX} more`)
  lines.push(`What it means and what to do: ${problem.type} (request ${problem.request_id})`)
  return lines.map(printable)
}

/** Null: not a failure that a command foresees; it is shown with its stack. */
export const describeFailure = (error: unknown): { lines: string[]; exitCode: number } | null => {
  if (error instanceof Refusal) {
    return {
      lines: [printable(error.message), ...describeProblem(error.problem)],
      exitCode: exitCodeOf(error.problem),
    }
  }
  if (error instanceof CommandFailure) return { lines: [error.message, ...error.hints], exitCode: error.exitCode }
  return null
}

/** `lines` to stderr: the first one names the program, the others stand below it. */
export const formatFailure = ([first = '', ...others]: readonly string[]): string =>
  `opledger: ${first}\n${others.map((line) => `  ${line}\n`).join('')}`
