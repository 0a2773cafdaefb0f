import { AppError } from '../domain/errors.ts'

export const changedSince = (version: number): AppError =>
  new AppError('version-conflict', `the operation is at version ${version}: read it again and decide anew`)

/** What the caller decided on is not what is there any more. Null: they did not ask. */
export const refuseStale = (version: number, ifMatchVersion: number | null): void => {
  if (ifMatchVersion !== null && ifMatchVersion !== version) throw changedSince(version)
}
