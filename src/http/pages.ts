import type { FastifyReply, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import type { PageRequest } from '../services/requests.ts'
import type { Page } from '../services/views.ts'
import { decodeCursor, encodeCursor } from './cursors.ts'

/** A list as its cursors know it: its name, its filters as given, and what a position in it looks like. */
export interface ListOf<Position> {
  name: string
  filters: unknown
  position: z.ZodType<Position>
}

export const pageRequestOf = <Position>(
  query: { limit: number; cursor?: string | undefined },
  list: ListOf<Position>,
): PageRequest<Position> => ({
  limit: query.limit,
  position: decodeCursor(query.cursor, list.name, list.filters, list.position),
})

/** The page as JSON, with `Link: rel="next"` where there is more. */
export const answerPage = <View, Position, Resource>(
  request: FastifyRequest,
  reply: FastifyReply,
  page: Page<View, Position>,
  list: ListOf<Position>,
  toResource: (view: View) => Resource,
): { items: Resource[]; next_cursor?: string } => {
  const items = page.items.map(toResource)
  if (page.next === null) return { items }
  const cursor = encodeCursor(list.name, list.filters, page.next)
  const [path, query = ''] = request.url.split('?', 2)
  const others = query.split('&').filter((pair) => pair !== '' && !pair.startsWith('cursor='))
  reply.header('link', `<${path}?${[...others, `cursor=${cursor}`].join('&')}>; rel="next"`)
  return { items, next_cursor: cursor }
}
