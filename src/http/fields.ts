import { z } from 'zod'
import type { Json } from '../domain/operation-type.ts'
import { timeFault } from '../domain/times.ts'
import { DEFAULT_PAGE_LIMIT, MAX_CURSOR_BYTES, MAX_FILTER_BYTES, MAX_FILTER_VALUES, MAX_PAGE_LIMIT } from './limits.ts'
import { byteLength } from './text.ts'

/** The building blocks of the schemas: request fields with their limits, and the forms that answers share. */

/** Text of 1 to `maxBytes` bytes. In the document the limit stands in characters, which are never more than the bytes. */
export const textField = (maxBytes: number) =>
  z
    .string()
    .min(1)
    .max(maxBytes)
    .refine((text) => byteLength(text) <= maxBytes, `must be at most ${maxBytes} bytes of UTF-8`)

/** Any JSON value, but there must be one. The body parser has bounded it. */
export const jsonField = z
  .unknown()
  .refine((value) => value !== undefined, 'is missing')
  .transform((value) => value as Json)

/** RFC 3339 with an offset, in the range that PostgreSQL and people read alike. Kept as text: microseconds matter. */
export const timeField = z.iso
  .datetime({ offset: true, abort: true })
  .max(40)
  .superRefine((text, context) => {
    const fault = timeFault(text)
    if (fault !== null) context.addIssue({ code: 'custom', message: fault })
  })

/** The database's own text of a time, as it went out in a cursor. */
export const dbTimeField = z
  .string()
  .regex(/^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]) ([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?\+00$/)
  .refine((text) => !Number.isNaN(Date.parse(text.replace(' ', 'T').replace('+00', 'Z'))))

export const filterField = z.string().min(1).max(MAX_FILTER_BYTES)

/** Comma-separated in the query; an unknown value is refused rather than matching nothing. */
export const listFilterField = <const Values extends readonly string[]>(values: Values) =>
  filterField
    .describe(`One or more of, separated by commas: ${values.join(', ')}`)
    .transform((text) => text.split(','))
    .refine((chosen) => chosen.length <= MAX_FILTER_VALUES, `must name at most ${MAX_FILTER_VALUES} values`)
    .refine((chosen) => chosen.every((value) => values.includes(value)), `must be of ${values.join(', ')}`)

export const pageFields = {
  limit: z
    .string()
    .refine((text) => /^\d{1,15}$/.test(text) && Number(text) >= 1, 'must be a whole number from 1 on')
    .meta({
      type: 'integer',
      minimum: 1,
      default: DEFAULT_PAGE_LIMIT,
      description: `Rows per page; above ${MAX_PAGE_LIMIT} it counts as ${MAX_PAGE_LIMIT}.`,
    })
    .transform((text) => Math.min(Number(text), MAX_PAGE_LIMIT))
    .optional()
    .transform((limit) => limit ?? DEFAULT_PAGE_LIMIT),
  cursor: z
    .string()
    .max(MAX_CURSOR_BYTES)
    .optional()
    .describe('`next_cursor` of the page before, with the same filters.'),
}

/** A time in an answer. */
export const time = z.string().meta({ format: 'date-time' })

/** A text in an answer whose values may grow: clients must expect ones that they do not know. */
export const openEnum = (values: readonly string[], description: string) =>
  z.string().describe(`${description} Of: ${values.join(', ')}. Further values may be added.`)

export const pageOf = <Item extends z.ZodType>(item: Item) =>
  z.object({
    items: z.array(item),
    next_cursor: z.string().optional().describe('Absent on the last page.'),
  })
