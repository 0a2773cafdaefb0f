import { randomBytes, randomUUID } from 'node:crypto'
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { ConfigurationError } from '../domain/errors.ts'

/** As long as the hash that signs with it. */
const SECRET_BYTES = 32
/** Whatever has fewer is not whole, be it ours or one that somebody put there. */
const SECRET_CHARS_MIN = 32

const MAKERS = {
  /** Signs download links, so that they outlive a restart. */
  'download-secret': () => randomBytes(SECRET_BYTES).toString('base64url'),
  /** Signs webhooks. */
  'webhook-secret': () => `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`,
} satisfies Record<string, () => string>

/**
 * The path of a file in the data directory with a secret in it, made once and for its owner alone. It is written under
 * another name first, so that a crash leaves no half secret, and of two starts at once both get that of the first one.
 * Throws a ConfigurationError, which never repeats the secret.
 */
export const keepSecret = (dataDir: string, name: keyof typeof MAKERS): string => {
  const file = path.join(dataDir, name)
  try {
    if (!isThere(file)) make(file, MAKERS[name]())
    if (readFileSync(file, 'utf8').trim().length >= SECRET_CHARS_MIN) return file
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new ConfigurationError(`OPLEDGER_DATA_DIR: ${file} cannot be used (${code})`, { cause: error })
  }
  throw new ConfigurationError(
    `OPLEDGER_DATA_DIR: ${file} holds no whole secret: delete it, and what was signed with it ends`,
  )
}

const isThere = (file: string): boolean => {
  try {
    readFileSync(file)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
}

const make = (file: string, secret: string): void => {
  const draft = `${file}.${randomUUID()}`
  mkdirSync(path.dirname(file), { recursive: true })
  try {
    writeFileSync(draft, `${secret}\n`, { flag: 'wx', mode: 0o600, flush: true })
    linkSync(draft, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(draft, { force: true })
  }
}
