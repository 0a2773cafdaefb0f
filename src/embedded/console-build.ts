import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Log } from '../log.ts'

/**
 * The console of a checkout. Its build is not kept in git, and nothing is run at installation; so `start` has it built
 * when it is missing or older than its sources, in a process of its own with low priority: it takes some seconds,
 * begins when all else is ready, and nothing waits for it. Until then `/console` says so. An image or an installed package brings the
 * build along (`npm run build`) and has no sources here.
 */
export interface ConsolePaths {
  root: string
  sources: string
  builder: string
  /** What the api serves. Beside it: `.building`, the mark of a build under way, and `.new`, what it has made so far. */
  output: string
}

export const consolePaths = (): ConsolePaths => {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  return {
    root,
    sources: path.join(root, 'src/console'),
    builder: path.join(root, 'scripts/build-console.ts'),
    output: path.join(root, 'dist/console'),
  }
}

/** Names what a build was made from; the builder leaves it in the build. */
export const BUILT_FROM = 'built-from.txt'

/** Over the sources, and package.json, which pins what they are built with. */
export const consoleDigest = ({ root, sources }: Pick<ConsolePaths, 'root' | 'sources'>): string => {
  const hash = createHash('sha256').update(readFileSync(path.join(root, 'package.json')))
  const names = readdirSync(sources, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort()
  for (const name of names) hash.update(path.relative(sources, name)).update('\0').update(readFileSync(name))
  return hash.digest('hex')
}

export const isConsoleBuilt = (paths: Pick<ConsolePaths, 'root' | 'sources' | 'output'>): boolean => {
  const made = path.join(paths.output, BUILT_FROM)
  return existsSync(made) && readFileSync(made, 'utf8') === consoleDigest(paths)
}

const LOW_PRIORITY = 10
const MESSAGE_UNITS_MAX = 2_000

export interface ConsoleBuild {
  /** Half a build is thrown away; the next `start` begins anew. */
  stop(): void
}

/** Null where there is nothing to do. The build goes on by itself; stop it when leaving. */
export const buildConsoleInBackground = (log: Log): ConsoleBuild | null => {
  const paths = consolePaths()
  if (!existsSync(paths.builder) || !existsSync(paths.sources) || isConsoleBuilt(paths)) return null
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
  const child = spawn(process.execPath, ['--import', loader, paths.builder], {
    cwd: paths.root,
    // it ends with us, however we end: then the channel closes
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  })
  let message = ''
  let stopping = false
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    message = (message + text).slice(-MESSAGE_UNITS_MAX)
  })
  child.on('error', (error) => log.warn({ err: error }, 'the console could not be built; all else works without it'))
  child.on('spawn', () => lowerPriority(child.pid))
  child.on('close', (code) => {
    if (code !== 0 && !stopping)
      log.warn({ code, message: message.trim() }, 'the console could not be built; all else works without it')
  })
  return {
    stop() {
      stopping = true
      child.kill()
    },
  }
}

const lowerPriority = (pid: number | undefined): void => {
  try {
    if (pid !== undefined) os.setPriority(pid, LOW_PRIORITY)
  } catch {
    // it has ended, or the system does not allow it: then it is built at the usual priority
  }
}
