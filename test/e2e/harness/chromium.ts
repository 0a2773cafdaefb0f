import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'

/** Programs that speak the protocol, as Debian and others name them. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome']

const findProgram = (name: string): string | undefined =>
  (process.env.PATH ?? '')
    .split(path.delimiter)
    .map((directory) => path.join(directory, name))
    .find(existsSync)

export const isRoot = (): boolean => process.getuid?.() === 0

/** Debian's own package: it is signed, and kept up to date with the system. */
const installOnDebian = (): void => {
  const run = (args: string[]): void => {
    const { status, error } = spawnSync('apt-get', args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    })
    if (status !== 0) throw new Error(`apt-get ${args.join(' ')} failed`, { cause: error })
  }
  run(['update', '-qq'])
  run(['install', '-qq', '--yes', '--no-install-recommends', 'chromium'])
}

/** CHROMIUM, or one that is in PATH, or Debian's, which is installed if we may. */
export const provideChromium = (): string => {
  const { CHROMIUM } = process.env
  if (CHROMIUM !== undefined && CHROMIUM !== '') return CHROMIUM
  const find = (): string | undefined => NAMES.map(findProgram).find((program) => program !== undefined)
  const found = find()
  if (found !== undefined) return found
  if (isRoot() && findProgram('apt-get') !== undefined) {
    process.stderr.write('installing chromium for the browser tests\n')
    installOnDebian()
  }
  const installed = find()
  if (installed === undefined)
    throw new Error('the browser tests need chromium: install it (apt-get install chromium), or name it in CHROMIUM')
  return installed
}
