import type { ChildProcess } from 'node:child_process'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { spawnScript, until, waitForExit } from './processes.ts'

export interface ApiProcess {
  url: string
  child: ChildProcess
  /** What it printed, for a test that failed. */
  output(): string
  isRunning(): boolean
  /** Ends it at once if it still runs. */
  kill(): Promise<void>
}

/** Within what hooks of tests have: on a busy machine loading the sources alone takes half a minute. */
const READY_MS = 100_000

/** A real api process on a free port, once it answers. It takes everybody for `dev`. */
export const startApi = async (options: {
  databaseUrl: string
  typeFiles: readonly string[]
  env?: Record<string, string>
}): Promise<ApiProcess> => {
  const port = await choosePort(null)
  const child = spawnScript('../../src/api.ts', [], {
    env: {
      PATH: '/usr/bin:/bin',
      DATABASE_URL: options.databaseUrl,
      OPLEDGER_TYPES: options.typeFiles.join(','),
      PORT: String(port),
      AUTH: 'off',
      LOG_LEVEL: 'warn',
      ...options.env,
    },
  })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      text += String(chunk)
    })
  }
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null
  const url = `http://127.0.0.1:${port}`
  await until(
    'the api answers',
    () => {
      if (!isRunning()) throw new Error(`the api ended: ${text}`)
      return fetch(`${url}/livez`).then(
        (response) => response.ok,
        () => false,
      )
    },
    READY_MS,
  )
  return {
    url,
    child,
    output: () => text,
    isRunning,
    async kill() {
      if (isRunning()) child.kill('SIGKILL')
      await waitForExit(child)
    },
  }
}
