import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { ConfigurationError } from '../domain/errors.ts'

const FILE = 'download.secret'
const BYTES = 32

/** The secret that signs download links, made once and kept, so that links outlive a restart. */
export const keepSecret = async (dataDir: string): Promise<string> => {
  const file = path.join(dataDir, FILE)
  await mkdir(dataDir, { recursive: true })
  const made = randomBytes(BYTES).toString('base64url')
  // whoever comes first makes it; everybody then reads the same
  await writeFile(file, made, { flag: 'wx', mode: 0o600, flush: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw unusable(file, error)
  })
  const secret = (
    await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      throw unusable(file, error)
    })
  ).trim()
  if (secret.length >= made.length) return secret
  throw new ConfigurationError(`OPLEDGER_DATA_DIR: ${file} holds no whole secret: delete it, and links made so far end`)
}

const unusable = (file: string, cause: NodeJS.ErrnoException): ConfigurationError =>
  new ConfigurationError(`OPLEDGER_DATA_DIR: ${file} cannot be used (${cause.code})`, { cause })
