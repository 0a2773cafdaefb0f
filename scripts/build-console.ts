/**
 * Builds the console into dist/console, which the api serves. One build at a time: the mark beside it tells another
 * builder, and the api, that one is under way. What is served is replaced as a whole, when the new build is complete.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { BUILT_FROM, consoleDigest, consolePaths } from '../src/embedded/console-build.ts'

/** A builder that is silent for so long has died. */
const MARK_MS = 2 * 60_000

const paths = consolePaths()
const mark = `${paths.output}.building`
const fresh = `${paths.output}.new`

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

const takeMark = (): boolean => {
  const other = statSync(mark, { throwIfNoEntry: false })
  if (other !== undefined) {
    const pid = Number(readFileSync(mark, 'utf8'))
    // one that was killed could not take its mark away
    if (Date.now() - other.mtimeMs > MARK_MS || !isAlive(pid)) rmSync(mark, { force: true })
  }
  try {
    writeFileSync(mark, String(process.pid), { flag: 'wx' })
    return true
  } catch {
    return false
  }
}

const build = async (): Promise<void> => {
  const vite = await import('vite').catch(() => null)
  if (vite === null) throw new Error('vite is not installed: run npm install with the development dependencies')
  const builtFrom = consoleDigest(paths)
  await vite.build({
    configFile: path.join(paths.sources, 'vite.config.ts'),
    build: { outDir: fresh, emptyOutDir: true },
    logLevel: 'warn',
  })
  writeFileSync(path.join(fresh, BUILT_FROM), builtFrom)
  rmSync(paths.output, { recursive: true, force: true })
  renameSync(fresh, paths.output)
}

mkdirSync(path.dirname(paths.output), { recursive: true })
if (takeMark()) {
  process.on('exit', () => rmSync(mark, { force: true }))
  // `start` holds a channel to us, which closes when it ends; it must not keep us alive
  process.on('disconnect', () => process.exit(1))
  process.channel?.unref()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => process.exit(1))
  await build().catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    process.exitCode = 1
  })
} else {
  process.stderr.write('another build of the console is under way\n')
}
