/** A service whose operations make artifacts, with a local object store of its own. */
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, rmSync, unlinkSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type { Json } from '../../src/domain/operation-type.ts'
import { artifactObjects } from '../../src/maintenance/artifacts.ts'
import type { ObjectStore } from '../../src/objects/object-store.ts'
import { openObjectStore } from '../../src/objects/open-object-store.ts'
import type { OperationView } from '../../src/services/views.ts'
import { openTestService, principal, type TestService } from './service.ts'
import { artifactTypeFile } from './service-artifact-type.ts'

export const DOWNLOAD_SECRET = 'a secret that is long enough to sign links'

export interface Gate {
  directory: string
  set(name: string): void
  open(name: string): void
  has(name: string): boolean
}

export interface ArtifactService {
  service: TestService
  objects: ObjectStore
  /** Of the object store. */
  directory: string
  types: ReturnType<TestService['context']['types']['list']>
  make(type: string, input: Json): Promise<OperationView>
  /** All bytes behind a fresh link. */
  download(operationId: string): Promise<Buffer>
  /** Names of all objects in the store. */
  stored(): string[]
  /** Removes what nobody can reach. */
  sweep(): Promise<void>
  newGate(): Gate
  close(): Promise<void>
}

export const openArtifactService = async (): Promise<ArtifactService> => {
  const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-artifacts-'))
  const directory = path.join(root, 'objects')
  const objects = await openObjectStore({ kind: 'file', directory, required: true })
  const service = await openTestService({
    typeFiles: [artifactTypeFile],
    downloads: { objects, secret: DOWNLOAD_SECRET },
  })
  const janitor = artifactObjects({ database: service.database, objects }, { warn: (error: unknown) => fail(error) })
  let gates = 0

  return {
    service,
    objects,
    directory,
    types: service.context.types.list(),
    make: (type, input) => service.submit(type, [], { input, body: { type, input } }),
    async download(operationId) {
      const { download } = await service.services.getArtifact(principal, operationId)
      if (!download) throw new Error('there is no link')
      const link = new URL(download.path, 'http://service')
      const [, , id = ''] = link.pathname.split('/')
      const { content, sizeBytes, sha256 } = await service.services.openDownload({
        artifactId: id.replace(/^art_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5'),
        expiresSeconds: Number(link.searchParams.get('expires')),
        signature: link.searchParams.get('signature') ?? '',
      })
      const pieces: Uint8Array[] = []
      for await (const piece of content) pieces.push(piece)
      const bytes = Buffer.concat(pieces)
      const found = { sizeBytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') }
      if (found.sizeBytes !== sizeBytes || found.sha256 !== sha256) throw new Error('the bytes are not those announced')
      return bytes
    },
    stored: () =>
      readdirSync(directory, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => path.relative(directory, path.join(entry.parentPath, entry.name)))
        .sort(),
    async sweep() {
      while ((await janitor.runOnce()).more);
    },
    newGate() {
      const gate = mkdtempSync(path.join(root, `gate-${gates++}-`))
      return {
        directory: gate,
        set: (name) => writeFileSync(path.join(gate, name), ''),
        open: (name) => unlinkSync(path.join(gate, name)),
        has: (name) => readdirSync(gate).includes(name),
      }
    },
    async close() {
      await service.close()
      rmSync(root, { recursive: true, force: true })
    },
  }
}

const fail = (error: unknown): void => {
  throw new Error(`the janitor warned: ${JSON.stringify(error)}`, { cause: error })
}
