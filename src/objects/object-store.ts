/** Where the bytes of artifacts are kept. Names are paths of plain characters, such as `tmp/1/<uuid>/0-1`. */

export interface ObjectStore {
  /**
   * Stores the bytes under a name, whole or not at all as far as the caller can tell: after a failure the name may hold a
   * part, and is to be deleted or forgotten. On return the object survives a crash of this machine.
   */
  put(name: string, bytes: AsyncIterable<Uint8Array>, options: PutOptions): Promise<void>
  /** Piece by piece; the next piece is read when it is asked for. Throws `ObjectMissing` at the first one. */
  read(name: string): AsyncIterable<Uint8Array>
  /** What is not there is deleted already. */
  delete(name: string): Promise<void>
  /** Names of the objects directly in a folder; none when there is no such folder. */
  list(folder: string): Promise<string[]>
  /** Deletes a folder and all that is in it. */
  deleteFolder(folder: string): Promise<void>
  close(): Promise<void>
}

export interface PutOptions {
  contentType: string
  /** Null: not known before the last byte. */
  sizeBytes: number | null
}

export class ObjectMissing extends Error {
  override readonly name = 'ObjectMissing'
}

export type ObjectStoreSettings =
  | {
      kind: 'file'
      directory: string
      /** Somebody asked for this directory: it has to be there. The default one is missed when something is put. */
      required: boolean
    }
  | {
      kind: 's3'
      bucket: string
      /** Before every name, without slashes at its ends; empty: none. */
      prefix: string
      endpoint: string | null
      region: string
      /** Null: as the SDK finds them (instance role, shared files). */
      credentials: { accessKeyId: string; secretAccessKey: string } | null
      forcePathStyle: boolean
    }

const none = (): never => {
  throw new Error('this process has no object store')
}
/** For a process that makes no artifacts and gives none out. */
export const NO_OBJECT_STORE: ObjectStore = {
  put: none,
  read: none,
  delete: none,
  list: none,
  deleteFolder: none,
  close: async () => {},
}
