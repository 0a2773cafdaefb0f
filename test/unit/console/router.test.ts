import { describe, expect, it } from 'vitest'
import {
  listOf,
  parseQuery,
  parseRoute,
  pathOf,
  type Route,
  urlWith,
  withFilters,
} from '../../../src/console/router.ts'

const ROUTES: Route[] = [
  { page: 'today' },
  { page: 'operations' },
  { page: 'operation', id: 'op_0198' },
  { page: 'item', id: 'op_0198', key: 'user/1 ?&#%ü' },
  { page: 'replay', id: 'op_0198' },
  { page: 'reconciliation' },
  { page: 'incidents' },
  { page: 'incident', id: 'inc_1' },
  { page: 'types' },
  { page: 'workers' },
]

it.each(ROUTES.map((route) => [route.page, route] as const))('finds %s again', (_page, route) => {
  expect(parseRoute(pathOf(route))).toEqual(route)
  expect(parseRoute(new URL(pathOf(route), 'http://host').pathname)).toEqual(route)
})

it.each(['/console/', '/console'])('opens today at %s', (path) => {
  expect(parseRoute(path)).toEqual({ page: 'today' })
})

it.each([
  '/console/nope',
  '/console/operations/a/b',
  '/console/operations/a/items',
  '/console/%E0%A4%A',
  '/console/types/a',
])('knows no %s', (path) => {
  expect(parseRoute(path)).toEqual({ page: 'unknown' })
})

describe('queries', () => {
  it('hold what is chosen', () => {
    expect(urlWith('/console/operations', { status: 'running,paused', type: '', cursor: undefined })).toBe(
      '/console/operations?status=running%2Cpaused',
    )
    expect(urlWith('/console/operations', {})).toBe('/console/operations')
    expect(parseQuery('?status=running%2Cpaused&label.team=a%26b')).toEqual({
      status: 'running,paused',
      'label.team': 'a&b',
    })
  })

  it('begin lists anew when a filter changes, and keep other filters', () => {
    const query = { status: 'failed', cursor: 'abc', items_cursor: 'def', state: 'failed' }
    expect(withFilters(query, { status: 'running', state: undefined })).toEqual({ status: 'running' })
  })

  it('hold lists as the API takes them', () => {
    expect(listOf('a,b')).toEqual(['a', 'b'])
    expect(listOf('')).toEqual([])
    expect(listOf(undefined)).toEqual([])
  })
})
