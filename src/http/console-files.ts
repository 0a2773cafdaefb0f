import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { gzipSync } from 'node:zlib'

/**
 * The built console, held in memory: some ten files, a few hundred kB. Nothing is looked up on the disk by a path that a
 * client sent. When it is built anew (`start` does so after an update), the next page that is asked for shows it.
 */
export interface ConsoleFile {
  content: Buffer
  /** Null where it would save nothing. */
  gzipped: Buffer | null
  contentType: string
  etag: string
  /** Its name carries a hash of its content, so it never changes. */
  immutable: boolean
}

export type ConsoleState = 'ready' | 'building' | 'missing'

const INDEX = 'index.html'
/** The builder touches it when it begins and removes it when it is done; a builder that died leaves an old one. */
const BUILDING_MARK_MS = 2 * 60_000
/** Smaller ones fit into one packet either way. */
const GZIP_BYTES_MIN = 1_400

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}

export class ConsoleFiles {
  readonly #directory: string
  #files: ReadonlyMap<string, ConsoleFile> = new Map()
  #builtAtMs: number | null = null

  /** @param directory where the build is; beside it stands `<directory>.building` while it is being made */
  constructor(directory: string) {
    this.#directory = directory
  }

  /** Looks again whether there is a (new) build. */
  state(): ConsoleState {
    const builtAtMs = modifiedAtMs(path.join(this.#directory, INDEX))
    if (builtAtMs !== null) {
      if (builtAtMs !== this.#builtAtMs) {
        this.#files = readFiles(this.#directory)
        this.#builtAtMs = builtAtMs
      }
      return 'ready'
    }
    const markedAtMs = modifiedAtMs(`${this.#directory}.building`)
    return markedAtMs !== null && Date.now() - markedAtMs < BUILDING_MARK_MS ? 'building' : 'missing'
  }

  /** The page itself. Call `state` first. */
  index(): ConsoleFile | null {
    return this.file(INDEX)
  }

  /** @param name relative, with slashes, as in the build: `assets/index-abc.js` */
  file(name: string): ConsoleFile | null {
    return this.#files.get(name) ?? null
  }
}

const modifiedAtMs = (file: string): number | null => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? null

const readFiles = (directory: string): Map<string, ConsoleFile> => {
  const files = new Map<string, ConsoleFile>()
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const contentType = CONTENT_TYPES[path.extname(entry.name)]
    if (!entry.isFile() || contentType === undefined) continue
    const full = path.join(entry.parentPath, entry.name)
    const name = path.relative(directory, full).split(path.sep).join('/')
    const content = readFileSync(full)
    files.set(name, {
      content,
      gzipped: content.length < GZIP_BYTES_MIN ? null : gzipSync(content),
      contentType,
      etag: `"${createHash('sha256').update(content).digest('base64url').slice(0, 22)}"`,
      immutable: name.startsWith('assets/'),
    })
  }
  return files
}
