import type { Database } from '../storage/database.ts'
import {
  deleteTailSlice,
  forgetUpload,
  readTailEnd,
  TAIL_SLICE_ROWS,
  takeStaleUpload,
} from '../storage/upload-tails.ts'
import type { Upload } from '../storage/uploads.ts'

/** Deletes what earlier uploads left behind, from its end in slices. False: the upload is not in `state` any more. */
export const deleteTail = async (database: Database, upload: Upload, state: 'live' | 'abandoned'): Promise<boolean> => {
  const end = await database.query((connection) => readTailEnd(connection, upload))
  if (end === null) return true
  for (let to = end; to >= upload.fromOrd; to -= TAIL_SLICE_ROWS) {
    const from = to - TAIL_SLICE_ROWS + 1
    if (!(await database.query((connection) => deleteTailSlice(connection, upload, state, from, to)))) return false
  }
  return true
}

/** Removes one upload that nobody continued, its tail first. False: there is none. */
export const removeAbandonedUpload = async ({ database }: { database: Database }): Promise<boolean> => {
  const upload = await database.query(takeStaleUpload)
  if (!upload) return false
  if (await deleteTail(database, upload, 'abandoned')) {
    await database.query((connection) => forgetUpload(connection, upload))
  }
  return true
}
