/** Clocks that are wrong, by Debian's libfaketime: of a process from its start, or of a server while it runs. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'

const LIBRARIES = '/usr/lib'

/** Null where the package is not installed. */
export const findFakeTime = (): string | null => {
  for (const name of readdirSync(LIBRARIES)) {
    // the one for programs with threads
    const file = path.join(LIBRARIES, name, 'faketime', 'libfaketimeMT.so.1')
    if (existsSync(file)) return file
  }
  return null
}

/** The monotonic clock stays right: no machine has a wrong one. */
const wrapped = (library: string): Record<string, string> => ({
  LD_PRELOAD: library,
  FAKETIME_DONT_FAKE_MONOTONIC: '1',
})

/** Environment of a process whose clock is off by so much, such as `+1h`. */
export const clockOff = (library: string, by: string): Record<string, string> => ({ ...wrapped(library), FAKETIME: by })

/** Environment of processes whose clock is off by what `file` says; it is read anew each time that a clock is read. */
export const clockOfFile = (library: string, file: string): Record<string, string> => ({
  ...wrapped(library),
  FAKETIME_TIMESTAMP_FILE: file,
  FAKETIME_NO_CACHE: '1',
})

export const setClock = (file: string, by: string): void => writeFileSync(file, `${by}\n`)
