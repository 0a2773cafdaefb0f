/** What a command ends with. Scripts and cron live by these, so they are part of the contract: none is ever renumbered. */
export const EXIT = {
  /** What was asked for holds. */
  ok: 0,
  /** Refused by the service, or something unforeseen. */
  refused: 1,
  /** An operation ended otherwise than hoped for; a health figure is an alarm. */
  notWell: 2,
  /** A preflight forbids the replay. */
  blocked: 3,
  /** Uncertain items wait for a person. */
  undecided: 4,
  /** sysexits.h EX_USAGE. */
  usage: 64,
  /** sysexits.h EX_UNAVAILABLE: not reached, overloaded, or an error of the service; the same may work later. */
  unavailable: 69,
  /** 128 + SIGINT: stopped waiting; the operation goes on. */
  interrupted: 130,
} as const

export const EXIT_CODES_HELP = `
Exit codes:
  0    done as asked; the operation succeeded, nothing is blocked, no alarm
  1    the service refused the request: its problem says why
  2    the operation ended otherwise than hoped for; health: an alarm
  3    the preflight blocks the replay
  4    uncertain items wait for a person (opledger reconcile)
  64   the command line is wrong
  69   the service was not reached, is overloaded or failed: try again later
  78   a setting of the environment is wrong
  130  Ctrl-C while waiting; the operation goes on
`

/** Ends a command with one message. `hints` are lines of what to do. */
export class CommandFailure extends Error {
  readonly exitCode: number
  readonly hints: readonly string[]

  constructor(message: string, exitCode: number, options: { hints?: readonly string[]; cause?: unknown } = {}) {
    super(message, { cause: options.cause })
    this.exitCode = exitCode
    this.hints = options.hints ?? []
  }
}
