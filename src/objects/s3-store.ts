/**
 * Objects in an S3-compatible store. S3 wants to know the size of an object before its first byte: what has no size yet is
 * written to a temporary file first, so that memory stays flat whatever a chunk holds.
 */
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Disk } from 'flydrive'
import { S3Driver } from 'flydrive/drivers/s3'
import { storeOn } from './disk-store.ts'
import type { ObjectStore, ObjectStoreSettings } from './object-store.ts'

export const openS3Store = (settings: Extract<ObjectStoreSettings, { kind: 's3' }>): ObjectStore => {
  const { bucket, prefix, endpoint, region, credentials, forcePathStyle } = settings
  const driver = new S3Driver({
    bucket,
    region,
    forcePathStyle,
    ...(endpoint === null ? {} : { endpoint }),
    ...(credentials === null ? {} : { credentials }),
    visibility: 'private',
    supportsACL: false,
    // stores that only speak S3 mostly do not know the newer checksums
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  })
  const disk = new Disk(driver)
  const keyOf = (name: string): string => (prefix === '' ? name : `${prefix}/${name}`)
  return {
    ...storeOn(disk, keyOf),
    // a Disk takes the slash away, and S3 would then delete every name that begins like the folder's
    deleteFolder: (folder) => driver.deleteAll(`${keyOf(folder)}/`),
    async put(name, bytes, { contentType, sizeBytes }) {
      const source = Readable.from(bytes, { objectMode: false })
      if (sizeBytes !== null && sizeBytes > 0) {
        return disk.putStream(keyOf(name), source, { contentType, contentLength: sizeBytes })
      }
      const folder = await mkdtemp(path.join(os.tmpdir(), 'opledger-chunk-'))
      try {
        const file = path.join(folder, 'bytes')
        await pipeline(source, createWriteStream(file, { mode: 0o600 }))
        const { size } = await stat(file)
        // flydrive leaves a length of 0 out, and a stream without a length is refused
        if (size === 0) await disk.put(keyOf(name), new Uint8Array(0), { contentType })
        else await disk.putStream(keyOf(name), createReadStream(file), { contentType, contentLength: size })
      } finally {
        await rm(folder, { recursive: true, force: true })
      }
    },
  }
}
