import { spawn } from 'node:child_process'
import { chownSync, statSync } from 'node:fs'

/** PostgreSQL refuses to run as root; then it runs under this uid and gid, for which no user has to exist. */
const UNPRIVILEGED_ID = 65_534

/** Who PostgreSQL runs as: null means as ourselves. */
export type Account = { uid: number; gid: number } | null

/** As root, a cluster that exists already stays with its owner, who may have been another user. */
export const chooseAccount = (cluster: string): Account => {
  if (process.getuid?.() !== 0) return null
  const owner = statSync(cluster, { throwIfNoEntry: false })
  return owner && owner.uid !== 0 ? { uid: owner.uid, gid: owner.gid } : { uid: UNPRIVILEGED_ID, gid: UNPRIVILEGED_ID }
}

export const giveTo = (account: Account, path: string): void => {
  if (account) chownSync(path, account.uid, account.gid)
}

export interface CommandResult {
  ok: boolean
  output: string
}

const OUTPUT_CHARS_MAX = 20_000

/**
 * Runs a command as the account, in a session of its own: a Ctrl-C or a SIGTERM to our process group reaches neither
 * the command nor what it leaves running.
 */
export const runAs = (
  account: Account,
  command: string,
  args: string[],
  { cwd, input }: { cwd?: string; input?: string } = {},
): Promise<CommandResult> =>
  new Promise((resolve) => {
    const child = spawn(command, args, {
      ...(account ?? {}),
      ...(cwd === undefined ? {} : { cwd }),
      detached: true,
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' },
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    })
    let output = ''
    const collect = (chunk: string) => {
      output = (output + chunk).slice(-OUTPUT_CHARS_MAX)
    }
    child.stdout?.setEncoding('utf8').on('data', collect)
    child.stderr?.setEncoding('utf8').on('data', collect)
    // A command that dies before it read its input is told by its exit code.
    child.stdin?.on('error', () => {}).end(input)
    child.on('error', (error) => resolve({ ok: false, output: error.message }))
    // `exit`, not `close`: a server that the command leaves running may have inherited the pipes.
    child.on('exit', (code) => {
      setImmediate(() => {
        child.stdout?.destroy()
        child.stderr?.destroy()
        resolve({ ok: code === 0, output: output.trim() })
      })
    })
  })

/** True when the account can get into the directory: its own mode is not enough, every parent counts. */
export const canEnter = async (account: Account, directory: string): Promise<boolean> =>
  account === null || (await runAs(account, '/bin/sh', ['-c', 'cd "$1"', 'sh', directory])).ok
