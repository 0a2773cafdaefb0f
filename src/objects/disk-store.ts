import type { Disk } from 'flydrive'
import { ObjectMissing, type ObjectStore } from './object-store.ts'

/** What both kinds share. `keyOf` puts the store's prefix before a name. */
export const storeOn = (disk: Disk, keyOf: (name: string) => string): Omit<ObjectStore, 'put' | 'deleteFolder'> => ({
  read: (name) => readFrom(disk, keyOf(name)),
  delete: (name) => disk.delete(keyOf(name)),
  async list(folder) {
    const names: string[] = []
    let paginationToken: string | undefined
    do {
      const page = await disk.listAll(keyOf(folder), paginationToken === undefined ? {} : { paginationToken })
      for (const entry of page.objects) if (entry.isFile) names.push(`${folder}/${entry.name}`)
      paginationToken = page.paginationToken
    } while (paginationToken !== undefined)
    return names
  },
  close: async () => {},
})

async function* readFrom(disk: Disk, key: string): AsyncGenerator<Uint8Array> {
  try {
    const stream: AsyncIterable<Uint8Array> = await disk.getStream(key)
    yield* stream
  } catch (error) {
    if (isMissing(error)) throw new ObjectMissing(`there is no object ${key}`, { cause: error })
    throw error
  }
}

/** flydrive wraps what its drivers throw. */
const isMissing = (error: unknown): boolean => {
  for (let e = error; e instanceof Error; e = e.cause) {
    if (('code' in e && e.code === 'ENOENT') || e.name === 'NoSuchKey' || e.name === 'NotFound') return true
  }
  return false
}
