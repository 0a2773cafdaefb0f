import { randomBytes } from 'node:crypto'
import { linkSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { ConfigurationError } from '../domain/errors.ts'

/** As long as the hash that signs with it. */
const SECRET_BYTES = 32

/**
 * The file with the secret that webhooks are signed with, made once per data directory. It is written under another name
 * first, so that a crash leaves no half secret, and of two starts at once the second one takes the first one's.
 */
export const ensureWebhookSecret = (dataDir: string): string => {
  const file = path.join(dataDir, 'webhook-secret')
  const draft = `${file}.${process.pid}`
  try {
    mkdirSync(dataDir, { recursive: true })
    writeFileSync(draft, `whsec_${randomBytes(SECRET_BYTES).toString('base64')}\n`, { mode: 0o600, flush: true })
    linkUnlessThere(draft, file)
    rmSync(draft)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new ConfigurationError(`OPLEDGER_DATA_DIR: cannot write ${file} (${code})`, { cause: error })
  }
  return file
}

const linkUnlessThere = (draft: string, file: string): void => {
  try {
    linkSync(draft, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}
