/** The object store of a process, by its settings: local disk or anything that speaks S3. Only what is used is loaded. */
import { mkdir, open } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { Disk } from 'flydrive'
import { FSDriver } from 'flydrive/drivers/fs'
import { ConfigurationError } from '../domain/errors.ts'
import { storeOn } from './disk-store.ts'
import type { ObjectStore, ObjectStoreSettings } from './object-store.ts'

/** Throws a ConfigurationError when the directory of local artifacts cannot be used. */
export const openObjectStore = async (settings: ObjectStoreSettings): Promise<ObjectStore> => {
  if (settings.kind === 's3') return (await import('./s3-store.ts')).openS3Store(settings)
  const { directory, required } = settings
  // exports hold customers' data: nobody else on the machine reads them
  const make = () => mkdir(directory, { recursive: true, mode: 0o700 })
  await make().catch((error: unknown) => {
    if (!required) return
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
    throw new ConfigurationError(`OPLEDGER_ARTIFACT_STORE: ${directory} cannot be used as a directory (${code})`, {
      cause: error,
    })
  })
  const disk = new Disk(new FSDriver({ location: directory, visibility: 'private' }))
  return {
    ...storeOn(disk, (name) => name),
    deleteFolder: (folder) => disk.deleteAll(folder),
    async put(name, bytes) {
      await make()
      await disk.putStream(name, Readable.from(bytes, { objectMode: false }))
      const file = path.join(directory, name)
      // the bytes, then the name: a row may say that they are there
      await flush(file)
      await flush(path.dirname(file))
    },
  }
}

const flush = async (file: string): Promise<void> => {
  const handle = await open(file, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
