/** Times as answers show them: one spelling for the edge and for what workers write into files. */
export { toMillis, toRfc3339, toRfc3339OrNull } from '../domain/times.ts'
