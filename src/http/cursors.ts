import { createHash } from 'node:crypto'
import type { z } from 'zod'
import { AppError } from '../domain/errors.ts'
import { MAX_CURSOR_BYTES } from './limits.ts'

/**
 * A cursor is base64url of `[fingerprint of list and filters, position]`. It is opaque, not secret: a forged one can at
 * most name another position in a list that the caller may read anyway, and the position is checked against its schema
 * before it comes near SQL.
 */

const fingerprintOf = (list: string, filters: unknown): string =>
  createHash('sha256')
    .update(JSON.stringify([list, filters]))
    .digest('base64url')
    .slice(0, 12)

export const encodeCursor = (list: string, filters: unknown, position: unknown): string =>
  Buffer.from(JSON.stringify([fingerprintOf(list, filters), position])).toString('base64url')

const refuse = (detail: string): never => {
  throw new AppError('invalid-cursor', detail, { errors: [{ detail, pointer: 'cursor' }] })
}

export const decodeCursor = <Position>(
  cursor: string | undefined,
  list: string,
  filters: unknown,
  schema: z.ZodType<Position>,
): Position | null => {
  if (cursor === undefined) return null
  const content = cursor.length > MAX_CURSOR_BYTES ? null : parse(cursor)
  if (content === null) return refuse('The cursor is not one that this service made')
  if (content[0] !== fingerprintOf(list, filters))
    return refuse('The cursor belongs to a list with other filters; start again without it')
  const position = schema.safeParse(content[1])
  return position.success ? position.data : refuse('The cursor is not one that this service made')
}

const parse = (cursor: string): [unknown, unknown] | null => {
  if (!/^[\w-]+$/.test(cursor)) return null
  try {
    const content: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    return Array.isArray(content) && content.length === 2 ? [content[0], content[1]] : null
  } catch {
    // Whatever it is, it is not ours; the caller gets one clear answer.
    return null
  }
}
