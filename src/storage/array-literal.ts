/**
 * Arrays as PostgreSQL array literals, for `${ints(xs)}::int[]`. One parameter carries a whole batch, so that a
 * statement stays the same (and prepared) whatever its size, and no type catalogue has to be fetched at connect.
 */
export const ints = (values: readonly (number | null)[]): string => `{${values.map((v) => v ?? 'NULL').join(',')}}`

export const texts = (values: readonly (string | null | undefined)[]): string =>
  `{${values.map((v) => (v === null || v === undefined ? 'NULL' : `"${v.replace(/["\\]/g, '\\$&')}"`)).join(',')}}`

/**
 * A column of a batch that is mostly NULL, beside a full one in the same `unnest(…)`, which pads the shorter array with
 * NULLs. So a column without any value costs two characters.
 */
export const sparseTexts = (values: readonly (string | null | undefined)[]): string =>
  values.every((value) => value === null || value === undefined) ? '{}' : texts(values)

export const sparseInts = (values: readonly (number | null)[]): string =>
  values.every((value) => value === null) ? '{}' : ints(values)
